//! Draws arrows from signals to the waits that they released.

use std::collections::HashSet;

use syncline_core::info::BackendKind;
use syncline_core::trace::Place;

use super::draw::{Area, Draw};
use crate::life;

impl Draw<'_> {
    pub(super) fn arrows(&mut self) {
        let recording = self.recording;
        let mut drawn = HashSet::new();
        for arrow in recording.arrows() {
            let (t, _) = arrow.to;
            let Some(to) = self.areas.get(&arrow.to).copied() else {
                continue;
            };
            let (from, backend) = match arrow.from {
                Place::Submission(of, _) if of == t => continue,
                Place::Submission(of, index) => {
                    let Some(area) = self.areas.get(&(of, index)).copied() else {
                        continue;
                    };
                    (area, recording.tracks[of].backend)
                }
                Place::Host(index) => {
                    let Some(&(x, y)) = self.signals.get(&index) else {
                        continue;
                    };
                    let area = Area {
                        left: x,
                        right: x,
                        top: y - 6.5,
                        bottom: y + 6.5,
                    };
                    (area, BackendKind::Host)
                }
            };
            let against = life::contradiction(recording, &arrow).is_some();
            self.said.against += usize::from(against);
            // Both ends must be visible, because a cut bar begins or ends elsewhere.
            let signalled = recording
                .signalled(arrow.from)
                .map(|time| self.since(time.nanoseconds));
            let began = recording.submission(arrow.to).and_then(|to| to.began);
            let began = began.map(|time| self.since(time.nanoseconds));
            if [signalled, began]
                .into_iter()
                .flatten()
                .any(|time| !self.is_inside(time))
            {
                continue;
            }
            let x2 = to.left + ((to.right - to.left) / 2.0).clamp(0.5, 3.5);
            let x1 = from.right - ((from.right - from.left) / 2.0).clamp(0.0, 2.0);
            let x1 = if against { x1 } else { x1.min(x2) };
            let down = to.top > from.top;
            let (y1, y2) = if down {
                (from.bottom, to.top)
            } else {
                (from.top, to.bottom)
            };
            #[allow(clippy::cast_possible_truncation, reason = "pixels")]
            if !drawn.insert([x1, y1, x2, y2].map(|at| at.round() as i64)) {
                continue;
            }
            let far = backend != recording.tracks[t].backend;
            self.said.far |= far && !against;
            self.said.near |= !far && !against;
            let (line, head) = match (against, far) {
                (true, _) => ("against", "failt"),
                (false, true) => ("far", "farh"),
                (false, false) => ("near", "nearh"),
            };
            self.arrow((x1, y1), (x2, y2), line, head);
        }
    }

    pub(super) fn arrow(
        &mut self,
        (x1, y1): (f64, f64),
        (x2, y2): (f64, f64),
        line: &str,
        head: &str,
    ) {
        let down = if y2 > y1 { 1.0 } else { -1.0 };
        let neck = y2 - down * 6.0;
        let bend = ((neck - y1).abs() * 0.55).max(6.0) * down;
        let path = format!(
            "M{x1:.2} {y1:.1}C{x1:.2} {:.1} {x2:.2} {:.1} {x2:.2} {neck:.1}",
            y1 + bend,
            neck - bend,
        );
        self.arrows.push_str(&format!(
            "<path class=\"halo\" d=\"{path}\"/><path class=\"{line}\" d=\"{path}\"/>\n",
        ));
        self.ends.push_str(&format!(
            "<circle class=\"{head}\" cx=\"{x1:.2}\" cy=\"{y1:.1}\" r=\"2\"/>\
             <path class=\"{head}\" d=\"M{x2:.2} {y2:.1}l-3.4 {:.1}h6.8z\"/>\n",
            -7.0 * down,
        ));
    }
}
