//! The tasks of a trial: a panic in one of them is a panic of the trial, not a quiet end.

use std::panic::resume_unwind;
use tokio::task::{JoinError, JoinSet};

/// Tasks that end with their owner.
pub type Tasks = JoinSet<()>;

/// Goes on unwinding here what panicked there.
///
/// # Panics
/// If a task that has ended did.
pub fn unwind_panicked(tasks: &mut Tasks) {
    while let Some(ended) = tasks.try_join_next() {
        unwind(ended);
    }
}

fn unwind(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_panic_of_a_task_reaches_its_owner() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut tasks = Tasks::new();
        tasks.spawn_on(async {}, runtime.handle());
        tasks.spawn_on(async { panic!("a bug in a task") }, runtime.handle());
        let ended = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..10 {
                runtime.block_on(tokio::task::yield_now());
                unwind_panicked(&mut tasks);
            }
        }));
        assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"a bug in a task"));
    }
}
