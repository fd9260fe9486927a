//! Draws runs, and the time before them.

use syncline_core::trace::{Outcome, Submission, Track};

use super::axis::words;
use super::draw::{Area, BAR, Draw, SMALL, STRIP};
use super::style;
use super::text::{escape, fit_name};
use crate::life::{self, Known};

impl Draw<'_> {
    /// Draws a run and returns where it ends.
    ///
    /// A narrow run is left to the one before it, which ends at `last`.
    pub(super) fn bar(&mut self, t: usize, s: usize, y: f64, last: f64) -> f64 {
        let recording = self.recording;
        let track = &recording.tracks[t];
        let submission = &track.submissions[s];
        let Some(run) = life::run(recording, submission) else {
            return last;
        };
        let begin = self.x(self.since(run.begin)).max(self.left);
        let end = self.x(self.since(run.end)).min(self.right).max(begin);
        let area = Area {
            left: begin,
            right: end,
            top: y,
            bottom: y + BAR,
        };
        self.areas.insert((t, s), area);
        for time in [submission.began, submission.ended].into_iter().flatten() {
            self.said.error = self.said.error.max(time.error);
        }
        let failed = matches!(submission.outcome, Outcome::Failed(_));
        if let Outcome::Failed(cause) = &submission.outcome {
            let what = format!("{} on {}: {cause}", life::name(submission), track.queue);
            self.said.failed.push(what);
        }
        if end - last < 0.5 && !failed {
            self.said.merged += 1;
            return last;
        }
        let class = style::class(track.backend);
        let (x, wide) = (begin, (end - begin).max(1.5));
        // A thin gap between runs that follow each other.
        let wide = if wide > 4.0 { wide - 0.75 } else { wide };
        let round = if wide > 10.0 {
            3.0
        } else {
            wide.min(2.0) / 2.0
        };
        let rect = format!(
            "x=\"{x:.2}\" y=\"{y:.1}\" width=\"{wide:.2}\" height=\"{BAR}\" rx=\"{round:.1}\""
        );
        let details = escape(&self.details(track, submission));
        let details = format!("<title>{details}</title>");
        let label = fit_name(&life::name(submission), SMALL, wide - 6.0);
        let mut text = "in";
        if failed {
            text = "failt";
            let (x, wide) = (x + 0.7, (wide - 1.4).max(1.5));
            let cross = format!("M{x:.2} {y:.1}l{wide:.2} {BAR}m0 -{BAR}l-{wide:.2} {BAR}");
            let stroke = if wide > 12.0 {
                " stroke-opacity=\".35\""
            } else {
                ""
            };
            self.bars.push_str(&format!(
                "<g>{details}<rect class=\"fail\" x=\"{x:.2}\" y=\"{:.1}\" width=\"{wide:.2}\" height=\"{:.1}\" rx=\"{round:.1}\"/>\
                 <path class=\"fail\"{stroke} d=\"{cross}\"/></g>\n",
                y + 0.7,
                BAR - 1.4,
            ));
        } else if matches!(run.known, Known::Whole) {
            self.bars.push_str(&format!(
                "<rect class=\"bar {class}\" {rect}>{details}</rect>\n"
            ));
        } else {
            text = "t";
            let open = matches!(run.known, Known::Unfinished);
            self.said.pending |= open;
            self.said.unknown |= !open;
            let dash = if open { "4 2.5" } else { "1.5 1.5" };
            self.bars.push_str(&format!(
                "<g>{details}<rect class=\"{class}\" fill-opacity=\".22\" {rect}/>\
                 <rect class=\"{class}-line\" stroke-dasharray=\"{dash}\" {rect}/></g>\n"
            ));
        }
        if let Some(label) = label {
            // Clipped by its own box, in case the reader's font is wider than expected.
            self.labels.push_str(&format!(
                "<svg x=\"{x:.2}\" y=\"{y:.1}\" width=\"{wide:.2}\" height=\"{BAR}\"><text class=\"{text}\" x=\"4\" y=\"15\">{}</text></svg>\n",
                escape(&label),
            ));
        }
        x + wide
    }

    pub(super) fn details(&self, track: &Track, submission: &Submission) -> String {
        let mut details = format!("{} #{}", track.queue, submission.number);
        if let Some(label) = &submission.label {
            details.push_str(&format!(" {label}"));
        }
        details.push_str(&format!(": made {}", words(self.since(submission.made))));
        if let Some(released) = submission.released {
            details.push_str(&format!(", released {}", words(self.since(released))));
        }
        if let Some(began) = submission.began {
            details.push_str(&format!(", began {}", words(self.since(began.nanoseconds))));
        }
        if let Some(ended) = submission.ended {
            details.push_str(&format!(", ended {}", words(self.since(ended.nanoseconds))));
        }
        if let (Some(began), Some(ended)) = (submission.began, submission.ended) {
            let ran = i128::from(ended.nanoseconds) - i128::from(began.nanoseconds);
            details.push_str(&format!(", ran {}", words(ran)));
        }
        match &submission.outcome {
            Outcome::Finished => {}
            Outcome::Pending => details.push_str(", not ended"),
            Outcome::Failed(cause) => details.push_str(&format!(", failed: {cause}")),
        }
        for &wait in &submission.waits {
            let name = life::timeline(self.recording, wait);
            details.push_str(&format!(", waited for {name} = {}", wait.value));
        }
        for &signal in &submission.signals {
            let name = life::timeline(self.recording, signal);
            details.push_str(&format!(", signalled {name} = {}", signal.value));
        }
        details
    }

    /// Draws the time before a run.
    pub(super) fn strip(
        &mut self,
        track: &Track,
        submission: &Submission,
        y: f64,
        last: f64,
    ) -> f64 {
        let before = life::before(self.recording, submission);
        let class = style::class(track.backend);
        let inside = |x: f64| x.clamp(self.left, self.right);
        let made = inside(self.x(self.since(before.made)));
        let held = inside(self.x(self.since(before.held)));
        let end = inside(self.x(self.since(before.end)));
        if end - last < 0.5 {
            return last;
        }
        let mut parts = String::new();
        if held - made >= 0.5 {
            self.said.held = true;
            parts.push_str(&format!(
                "<rect fill=\"url(#held-{class})\" x=\"{made:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{STRIP}\"/>",
                held - made,
            ));
        }
        if end - held >= 0.5 {
            self.said.queued = true;
            parts.push_str(&format!(
                "<rect class=\"{class}-soft\" x=\"{held:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"2\"/>",
                y + 1.5,
                end - held,
            ));
        }
        if parts.is_empty() {
            return last;
        }
        let what = format!(
            "{} #{}: held for {}, then with the driver for {}{}",
            life::name(submission),
            submission.number,
            words(i128::from(before.held) - i128::from(before.made)),
            words(i128::from(before.end) - i128::from(before.held)),
            if submission.outcome == Outcome::Pending {
                ", and not ended"
            } else {
                ""
            },
        );
        self.strips
            .push_str(&format!("<g><title>{}</title>{parts}</g>\n", escape(&what)));
        end
    }
}
