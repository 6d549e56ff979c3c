//! Bulk TCP over HTTP in one direction, and what of it was delivered.
//!
//! Each flow is a task that makes a connection and sends request after request on it. The tasks share one thread with
//! everything else. What was delivered is read from the kernel when somebody asks ([`Load::flows`]), never counted
//! from what was handed to a socket.

mod account;
mod flow;

use super::socket::{Handle, Via};
use super::target::{Endpoint, Server};
use super::task::{Tasks, unwind_panicked};
use super::tcp_info::TcpInfo;
use crate::line::{self, Flows, LineError, Trouble};
use crate::units::Direction;
use account::Account;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A load under way; dropping it breaks all its connections off at once, so that the queue drains.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    tasks: Tasks,
}

impl Load {
    /// Starts `load.flows` flows. Needs a tokio runtime around it; where the traffic originates (`load.origin`) is
    /// decided by whoever chooses `via`.
    ///
    /// # Errors
    /// [`LineError::Refused`] where the server takes no load of this direction.
    pub fn start(load: &line::Load, server: &Server, via: &Via) -> Result<Self, LineError> {
        let endpoint = server.endpoint(load.direction)?.clone();
        let now = Instant::now();
        let shared = Arc::new(Shared {
            endpoint,
            server: server.clone(),
            via: via.clone(),
            mss: load.mss,
            direction: load.direction,
            books: Mutex::new(Books {
                account: Account::new(load.direction, load.flows, now),
                handles: (0..load.flows).map(|_| None).collect(),
                over: false,
                told: Vec::new(),
                untold: VecDeque::new(),
            }),
        });
        if let Some(wait) = server.wants_quiet(now) {
            shared.tell(Trouble::ServerRefused { status: 429, retry_after_s: Some(whole_seconds(wait)) });
            return Ok(Self { shared, tasks: Tasks::new() });
        }
        let tasks = (0..load.flows as usize).map(|flow| flow::run(shared.clone(), flow)).collect();
        Ok(Self { shared, tasks })
    }

    /// What the flows have done since the start.
    ///
    /// # Panics
    /// If one of them did.
    pub fn flows(&mut self) -> Flows {
        unwind_panicked(&mut self.tasks);
        self.shared.books().flows(Instant::now())
    }

    /// What is wrong, if anything that was not told before; call until `None`, after [`Load::flows`].
    pub fn trouble(&self) -> Option<Trouble> {
        let mut books = self.shared.books();
        if books.account.stalled(Instant::now()) {
            books.tell(Trouble::Stalled);
        }
        books.untold.pop_front()
    }

    /// The largest payload of the segments that a flow sends now (upload) or gets (download), TCP options excluded.
    pub fn segment_bytes(&self) -> Option<u32> {
        let books = self.shared.books();
        let infos = books.handles.iter().flatten().filter_map(|handle| TcpInfo::of(handle.fd()).ok());
        infos.map(|info| if self.shared.direction == Direction::Upload { info.snd_mss } else { info.rcv_mss }).max()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.tasks.abort_all();
        // The tasks are dropped when the runtime gets round to it; their connections end here and now.
        let mut books = self.shared.books();
        books.over = true;
        for handle in books.handles.iter_mut().filter_map(Option::take) {
            handle.reset();
        }
    }
}

/// What the flows of one load have in common.
#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    server: Server,
    via: Via,
    mss: u32,
    direction: Direction,
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    account: Account,
    /// One per flow that is connected.
    handles: Vec<Option<Handle>>,
    /// No new request: the load was dropped, or the server has refused.
    over: bool,
    told: Vec<Trouble>,
    untold: VecDeque<Trouble>,
}

/// So many different troubles of one load are news; whoever is told that many has stopped reading.
const MOST_TROUBLES: usize = 8;

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        // Nothing is left half done under the lock.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, trouble: Trouble) {
        self.books().tell(trouble);
    }

    fn over(&self) -> bool {
        self.books().over
    }

    /// The server does not want this load: no more requests from any flow, nor from the next load before its time.
    fn refused(&self, status: u16, wait: Option<Duration>) {
        if let Some(wait) = wait {
            self.server.keep_quiet(Instant::now() + wait);
        }
        let mut books = self.books();
        books.over = true;
        books.tell(Trouble::ServerRefused { status, retry_after_s: wait.map(whole_seconds) });
    }
}

impl Books {
    fn tell(&mut self, trouble: Trouble) {
        if self.told.len() < MOST_TROUBLES && !self.told.contains(&trouble) {
            self.told.push(trouble.clone());
            self.untold.push_back(trouble);
        }
    }

    fn look(&mut self, flow: usize, now: Instant) {
        let info = self.handles[flow].as_ref().and_then(|handle| TcpInfo::of(handle.fd()).ok());
        self.account.look(flow, info, now);
    }

    fn flows(&mut self, now: Instant) -> Flows {
        for flow in 0..self.handles.len() {
            self.look(flow, now);
        }
        self.account.flows(now)
    }
}

/// Rounded up: a second too late is polite, a second too early is not.
fn whole_seconds(time: Duration) -> u32 {
    time.as_millis().div_ceil(1000).try_into().unwrap_or(u32::MAX)
}
