//! How much of a trial it takes: what is left out at its beginning, the blocks it is judged in, and the bytes that
//! are enough. A trial is bounded in time by its step and in bytes here, so that a fast line costs little more data
//! than a slow one.

use crate::line::Step;
use crate::units::Rate;
use std::time::Duration;

/// The beginning of a trial proves nothing: slow start, the queue of the trial before (facts H).
pub const SETTLE: Duration = Duration::from_millis(1500);
/// A shaped download gets no longer than this to settle.
const LONGEST_SETTLE: Duration = Duration::from_secs(6);
/// Replies of one block see one queue and count as one observation. On most lines a block is a second.
pub const BLOCK: Duration = Duration::from_secs(1);
/// On a fast line a block ends when it has seen so many bytes: 4000 full packets, which is what a second of a 50 Mbit/s
/// line sees.
const BLOCK_BYTES: u64 = 6_000_000;
/// However fast the line: of four reflectors that bear five pings a second each, five reply in this time, and the p95
/// of fewer is none. It is also long enough to see what matters: a rate that is 1 % too high adds 2.5 ms in it.
const SHORTEST_BLOCK: Duration = Duration::from_millis(250);
/// After so many bytes of load a trial that is not to be decided early has seen enough: 32,000 full packets, which the
/// packets in the queue (at most a few hundred, when counting begins and when it ends) falsify by less than a
/// hundredth; and more than a cable modem's credit of ten seconds at 35 Mbit/s …
const ENOUGH_BYTES: u64 = 48_000_000;
/// (The size of a packet is told from many packets; bursts are over by then, and nobody's delay is judged.)
const ENOUGH_OF_ONE_SIZE: u64 = ENOUGH_BYTES / 2;
/// … but not before so many blocks: with fewer there is no telling a steady line from one that steps.
const LEAST_BLOCKS: u32 = 4;

/// How long a download takes to settle whose shaper lets through `share` of what the provider's queue drains: slow start
/// fills that queue before the shaper can say a word, and it drains only as fast as the shaper leaves the line free.
pub fn settle_behind(queue: Duration, share: f64) -> Duration {
    let drained = queue.as_secs_f64() / (1.0 - share).max(0.01);
    (SETTLE + Duration::from_secs_f64(drained)).min(LONGEST_SETTLE)
}

/// The length of a block on a line that carries `rate`, probably; a second where that is not known.
pub fn block(rate: Rate) -> Duration {
    rate.time_for(BLOCK_BYTES).clamp(SHORTEST_BLOCK, BLOCK)
}

/// Has a trial seen enough after `judged` in blocks of `block`, with `bytes` of load in that time?
pub fn is_enough(step: Step, judged: Duration, block: Duration, bytes: u64) -> bool {
    judged >= block * LEAST_BLOCKS && bytes >= enough_bytes(step)
}

/// How long a trial of at most `longest` takes at `rate`, all directions together.
pub fn expected(step: Step, longest: Duration, rate: Rate) -> Duration {
    let judged = rate.time_for(enough_bytes(step)).max(block(rate) * LEAST_BLOCKS);
    longest.min(SETTLE.saturating_add(judged))
}

fn enough_bytes(step: Step) -> u64 {
    match step {
        Step::Link => ENOUGH_OF_ONE_SIZE,
        // Two trials are compared by what they carried in the same time.
        Step::Target | Step::Acks => u64::MAX,
        Step::Baseline | Step::Unshaped | Step::Confirm | Step::Search | Step::Verify => ENOUGH_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_lines_are_watched_for_seconds_and_fast_ones_for_bytes() {
        let longest = Duration::from_millis(12_500);
        let seconds = |kbit| expected(Step::Verify, longest, Rate::from_kbit(kbit)).as_secs_f64();
        let near = |seconds: f64, expected: f64| (seconds - expected).abs() < 0.01;
        assert!(near(seconds(500), 12.5) && near(seconds(34_000), 12.5));
        assert!(near(seconds(110_000), 4.99) && near(seconds(900_000), 2.5));
        assert_eq!(block(Rate::from_kbit(48_000)), BLOCK);
        assert_eq!(block(Rate::from_kbit(900_000)), SHORTEST_BLOCK);
        assert_eq!(block(Rate::from_kbit(0)), BLOCK);
    }

    #[test]
    fn a_download_settles_when_what_slow_start_left_has_drained() {
        let queue = Duration::from_millis(100);
        assert_eq!(settle_behind(queue, 0.9).as_millis(), 2500);
        assert_eq!(settle_behind(Duration::ZERO, 0.95), SETTLE);
        assert_eq!(settle_behind(queue, 1.2), LONGEST_SETTLE);
    }
}
