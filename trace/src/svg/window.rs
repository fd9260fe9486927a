//! Chooses the part of a recording that is drawn.

use syncline_core::trace::Recording;

use super::Options;
use crate::life;

/// Begin and end in nanoseconds since the recording began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: i128,
    /// After `from`.
    pub(super) to: i128,
}

impl Window {
    pub(super) fn of(recording: &Recording, options: &Options) -> Self {
        let since = |time: i64| i128::from(time) - i128::from(recording.begun);
        let mut begins = Vec::new();
        let mut first = since(recording.ended);
        let mut last = first;
        let mut any = false;
        for submission in recording.tracks.iter().flat_map(|track| &track.submissions) {
            let before = life::before(recording, submission);
            let (mut begin, mut end) = (since(before.made), since(before.end));
            if let Some(run) = life::run(recording, submission) {
                begin = begin.min(since(run.begin));
                end = end.max(since(run.end));
                begins.push((since(run.begin), since(run.end)));
            }
            first = if any { first.min(begin) } else { begin };
            last = if any { last.max(end) } else { end };
            any = true;
        }
        for signal in &recording.host_signals {
            let at = since(signal.at);
            first = if any { first.min(at) } else { at };
            last = if any { last.max(at) } else { at };
            any = true;
        }
        if !any {
            (first, last) = (0, since(recording.ended));
        }
        let most = options.submissions.max(1);
        if begins.len() > most && options.from.is_none() && options.to.is_none() {
            begins.sort_unstable();
            let skipped = (begins.len() - most) / 2;
            let middle = &begins[skipped..skipped + most];
            // Ends where the next submission begins, because the last one may run for long.
            let next = begins.get(skipped + most).map(|&(begin, _)| begin);
            first = middle.first().map_or(first, |&(begin, _)| begin);
            last = next.unwrap_or(last);
        } else {
            // A margin on both sides shows that the first and last run are not cut off.
            let air = ((last - first) / 60).max(1);
            first -= air;
            last += air;
        }
        let from = options.from.map_or(first, i128::from);
        let to = options.to.map_or(last, i128::from);
        let to = if to > from { to } else { from + 1000 };
        Self { from, to }
    }

    pub(super) const fn length(self) -> i128 {
        self.to - self.from
    }
}
