//! The text above and below the lanes: title, legend and notes.

use syncline_core::info::BackendKind;

use super::Options;
use super::axis::words;
use super::draw::{Draw, MARGIN, SMALL};
use super::style;
use super::text::{escape, fit, width};
use crate::life;

const LINE: f64 = 17.0;

impl Draw<'_> {
    pub(super) fn title(&self, options: &Options) -> String {
        if let Some(title) = &options.title {
            return escape(title);
        }
        let queues = self.recording.tracks.len();
        let mut apis: Vec<&str> = Vec::new();
        for track in &self.recording.tracks {
            let api = match track.backend {
                BackendKind::Host => "the host",
                other => life::api(other),
            };
            if !apis.contains(&api) {
                apis.push(api);
            }
        }
        let queues = if queues == 1 {
            "1 queue".to_owned()
        } else {
            format!("{queues} queues")
        };
        match apis.as_slice() {
            [] => "An empty recording".to_owned(),
            [api] => escape(&format!("{queues} of {api}")),
            [first @ .., last] => escape(&format!("{queues} of {} and {last}", first.join(", "))),
        }
    }

    /// Writes the title, and which part is shown.
    pub(super) fn head(&self, title: &str, full: f64) -> String {
        let all: usize = self
            .recording
            .tracks
            .iter()
            .map(|track| track.submissions.len())
            .sum();
        let shown = self.said.shown;
        let recorded = self.since(self.recording.ended);
        let which = if shown < all {
            format!(
                "{shown} of {all} submissions: {} to {} of the {} recorded",
                words(self.window.from),
                words(self.window.to),
                words(recorded),
            )
        } else {
            let plural = if all == 1 { "" } else { "s" };
            format!("all {all} submission{plural}, {} recorded", words(recorded))
        };
        let room = full - 2.0 * MARGIN;
        format!(
            "<svg x=\"{MARGIN}\" y=\"0\" width=\"{room:.1}\" height=\"70\"><text class=\"t title\" x=\"0\" y=\"36\">{title}</text>\
             <text class=\"m\" x=\"0\" y=\"56\">{}</text></svg>\n",
            escape(&which),
        )
    }

    /// Writes the legend of the marks that occur.
    pub(super) fn legend(&mut self, out: &mut String) {
        let said = &self.said;
        let class = said
            .backends
            .first()
            .map_or("host", |&backend| style::class(backend));
        let mut items: Vec<(String, &str)> = Vec::new();
        if said.shown > 0 {
            items.push((
                format!("<rect class=\"{class}\" width=\"22\" height=\"11\" rx=\"2.5\"/>"),
                "runs on the device",
            ));
        }
        if said.held {
            items.push((
                format!("<rect fill=\"url(#held-{class})\" y=\"3\" width=\"22\" height=\"5\"/>"),
                "held on the host",
            ));
        }
        if said.queued {
            items.push((
                format!("<rect class=\"{class}-soft\" y=\"4.5\" width=\"22\" height=\"2\"/>"),
                "with the driver, before its turn",
            ));
        }
        if said.pending {
            items.push((format!("<rect class=\"{class}\" fill-opacity=\".22\" width=\"22\" height=\"11\" rx=\"2.5\"/><rect class=\"{class}-line\" stroke-dasharray=\"4 2.5\" width=\"22\" height=\"11\" rx=\"2.5\"/>"), "had not ended"));
        }
        if said.unknown {
            items.push((format!("<rect class=\"{class}-line\" stroke-dasharray=\"1.5 1.5\" x=\"8\" width=\"3\" height=\"11\"/>"), "times unknown"));
        }
        if !said.failed.is_empty() {
            items.push(("<rect class=\"fail\" width=\"22\" height=\"11\" rx=\"2.5\"/><path class=\"fail\" d=\"M0 0l22 11m0 -11l-22 11\"/>".to_owned(), "failed"));
        }
        if said.signals {
            items.push((
                "<path class=\"host\" d=\"M11 -1l5 6.5l-5 6.5l-5 -6.5z\"/>".to_owned(),
                "signal by the host",
            ));
        }
        let arrow = |line: &str, head: &str| {
            format!(
                "<circle class=\"{head}\" cx=\"2\" cy=\"5.5\" r=\"2\"/><path class=\"{line}\" d=\"M2 5.5H16\"/><path class=\"{head}\" d=\"M22 5.5l-7 -3.4v6.8z\"/>"
            )
        };
        if said.far {
            items.push((arrow("far", "farh"), "signal to wait, across APIs"));
        }
        if said.near {
            items.push((arrow("near", "nearh"), "signal to wait, same API"));
        }
        if said.against > 0 {
            items.push((arrow("against", "failt"), "against the order of time"));
        }
        let mut x = MARGIN;
        for (mark, what) in items {
            let takes = 30.0 + width(what, SMALL) + 16.0;
            if x + takes > self.right && x > MARGIN {
                x = MARGIN;
                self.y += 20.0;
            }
            out.push_str(&format!(
                "<g transform=\"translate({x:.1} {:.1})\">{mark}<text class=\"m\" x=\"29\" y=\"9.5\">{what}</text></g>\n",
                self.y - 9.5,
            ));
            x += takes;
        }
        self.y += 10.0;
    }

    pub(super) fn notes(&mut self, out: &mut String) {
        let said = &self.said;
        let mut notes: Vec<(&str, String)> = Vec::new();
        for failed in said.failed.iter().take(3) {
            notes.push(("failt", format!("failed: {failed}")));
        }
        if said.failed.len() > 3 {
            notes.push((
                "failt",
                format!("and {} more failed", said.failed.len() - 3),
            ));
        }
        if said.against > 0 {
            notes.push((
                "failt",
                match said.against {
                    1 => "1 wait was over before its signal, beyond what the clocks' errors allow".to_owned(),
                    more => format!("{more} waits were over before their signals, beyond what the clocks' errors allow"),
                },
            ));
        }
        if said.lost > 0 {
            notes.push((
                "m",
                format!(
                    "{} submissions are missing: the recorder had no room for them",
                    said.lost
                ),
            ));
        }
        if self.recording.host_lost > 0 {
            let lost = self.recording.host_lost;
            notes.push((
                "m",
                format!(
                    "{lost} signals of the host are missing: the recorder had no room for them"
                ),
            ));
        }
        for untimed in &said.untimed {
            notes.push(("m", format!("no times of the device: {untimed}")));
        }
        if said.merged > 0 {
            notes.push((
                "m",
                format!(
                    "{} runs narrower than half a pixel are drawn with those beside them",
                    said.merged
                ),
            ));
        }
        if said.error > 0 {
            notes.push(("m", format!("Times of devices lie within ±{} of the host's clock; those of one clock are as exact among themselves as it counts", words(i128::from(said.error)))));
        }
        for (class, note) in notes {
            self.y += LINE;
            let note = fit(&note, SMALL, self.right - MARGIN).unwrap_or_default();
            out.push_str(&format!(
                "<text class=\"{class}\" x=\"{MARGIN}\" y=\"{:.1}\">{}</text>\n",
                self.y,
                escape(&note),
            ));
        }
    }
}
