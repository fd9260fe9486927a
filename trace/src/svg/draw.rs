//! Draws the picture: lanes from top to bottom, then the bars on them.

use std::collections::HashMap;

use syncline_core::info::BackendKind;
use syncline_core::trace::{Recording, Track};

use super::Options;
use super::axis::{Axis, words};
use super::style;
use super::text::{escape, fit, width, wrap};
use super::window::Window;
use crate::life;
use crate::rows::Rows;

pub(super) const MARGIN: f64 = 24.0;
/// Width of the mark of a device, and of the space below it.
const MARK: f64 = 16.0;
pub(super) const BAR: f64 = 22.0;
pub(super) const BAR_GAP: f64 = 3.0;
/// Height of the lines below the bars that show the time before runs.
pub(super) const STRIP: f64 = 5.0;
pub(super) const STRIP_GAP: f64 = 2.0;
/// Number of such lines. More submissions that wait at the same time overlap.
pub(super) const STRIPS: usize = 4;
pub(super) const LANE_PAD: f64 = 7.0;
pub(super) const DEVICE: f64 = 30.0;
/// Height of a further line of a device's name.
const LINE: f64 = 14.0;
/// Space between a name and the bands.
const BESIDE: f64 = 8.0;
pub(super) const SMALL: f64 = 11.0;
const NAME: f64 = 12.0;
/// Bold text of size [`NAME`] is as wide as text of this size.
const BOLD: f64 = 13.5;

/// The area of a bar, for arrows.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// What the picture has to say in words.
#[derive(Default)]
pub(super) struct Said {
    pub(super) shown: usize,
    pub(super) merged: usize,
    pub(super) failed: Vec<String>,
    pub(super) lost: u64,
    pub(super) untimed: Vec<String>,
    pub(super) error: u64,
    pub(super) against: usize,
    pub(super) held: bool,
    pub(super) queued: bool,
    pub(super) pending: bool,
    pub(super) unknown: bool,
    pub(super) signals: bool,
    pub(super) near: bool,
    pub(super) far: bool,
    pub(super) backends: Vec<BackendKind>,
}

pub(super) struct Draw<'r> {
    pub(super) recording: &'r Recording,
    pub(super) window: Window,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) y: f64,
    /// Bands, below everything else.
    pub(super) bands: String,
    /// The time before runs.
    pub(super) strips: String,
    /// Lines of arrows, below the bars. So none crosses the label of a run.
    pub(super) arrows: String,
    pub(super) bars: String,
    /// Both ends of arrows, on the edges of bars.
    pub(super) ends: String,
    pub(super) labels: String,
    pub(super) areas: HashMap<(usize, usize), Area>,
    pub(super) signals: HashMap<usize, (f64, f64)>,
    pub(super) said: Said,
}

/// Draws the whole picture.
pub(super) fn picture(recording: &Recording, options: &Options) -> String {
    let full = f64::from(options.width.clamp(480, 8000));
    let window = Window::of(recording, options);
    let devices = life::devices(recording);
    let threads = life::threads(recording);
    let queues = recording.tracks.iter().map(|track| &*track.queue);
    let names = queues.chain(threads.iter().map(|&(name, _)| name));
    let names = names.map(|name| width(name, NAME));
    let devices_names = devices.iter().map(|device| width(&device.name, BOLD));
    let gutter = names.chain(devices_names).fold(90.0, f64::max);
    // Bands and arrows begin to the right of all names.
    let gutter = gutter.min(full * 0.2) + MARK + BESIDE;
    let mut draw = Draw {
        recording,
        window,
        left: MARGIN + gutter,
        right: full - MARGIN,
        y: MARGIN + 66.0,
        bands: String::new(),
        strips: String::new(),
        arrows: String::new(),
        bars: String::new(),
        ends: String::new(),
        labels: String::new(),
        areas: HashMap::new(),
        signals: HashMap::new(),
        said: Said::default(),
    };
    let axis_y = draw.y;
    if !threads.is_empty() {
        draw.device("Host threads", BackendKind::Host);
        for (name, signals) in &threads {
            draw.thread(name, signals);
        }
    }
    for device in &devices {
        draw.device(&device.name, device.backend);
        for &track in &device.tracks {
            draw.lane(track);
        }
    }
    draw.arrows();
    let bottom = draw.y + 4.0;
    let mut out = String::new();
    let axis = draw.axis(axis_y, bottom);
    let mut tail = String::new();
    draw.y = bottom + 22.0;
    draw.legend(&mut tail);
    draw.notes(&mut tail);
    let height = draw.y + MARGIN - 8.0;
    let title = draw.title(options);
    out.push_str(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{full:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {full:.0} {height:.0}\" role=\"img\">\n\
         <title>{title}</title>\n{}\
         <rect class=\"ground edge\" x=\".5\" y=\".5\" width=\"{:.0}\" height=\"{:.0}\" rx=\"10\"/>\n",
        style::definitions(),
        full - 1.0,
        height - 1.0,
    ));
    out.push_str(&draw.head(&title, full));
    for part in [
        &draw.bands,
        &axis,
        &draw.strips,
        &draw.arrows,
        &draw.bars,
        &draw.ends,
        &draw.labels,
        &tail,
    ] {
        out.push_str(part);
    }
    out.push_str("</svg>\n");
    out
}

impl Draw<'_> {
    pub(super) fn since(&self, time: i64) -> i128 {
        i128::from(time) - i128::from(self.recording.begun)
    }

    /// Converts a time to a horizontal position, which may be outside.
    #[allow(
        clippy::cast_precision_loss,
        reason = "a pixel is far wider than the error"
    )]
    pub(super) fn x(&self, since: i128) -> f64 {
        let share = (since - self.window.from) as f64 / self.window.length() as f64;
        self.left + share * (self.right - self.left)
    }

    /// Converts pixels to nanoseconds.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "saturates, and is used for visible times"
    )]
    pub(super) fn nanoseconds(&self, pixels: f64) -> i64 {
        (pixels * self.window.length() as f64 / (self.right - self.left)) as i64
    }

    pub(super) fn is_inside(&self, since: i128) -> bool {
        (self.window.from..=self.window.to).contains(&since)
    }

    /// Writes the name of a device beside the bands, in up to two lines.
    pub(super) fn device(&mut self, name: &str, backend: BackendKind) {
        self.y += DEVICE;
        self.labels.push_str(&format!(
            "<g><title>{}</title><rect class=\"{}\" x=\"{MARGIN}\" y=\"{:.1}\" width=\"10\" height=\"10\" rx=\"2\"/>",
            escape(name),
            style::class(backend),
            self.y - 18.5,
        ));
        let lines = wrap(name, BOLD, self.left - MARGIN - MARK - BESIDE);
        for (at, line) in lines.iter().enumerate() {
            self.y += if at == 0 { 0.0 } else { LINE };
            self.labels.push_str(&format!(
                "<text class=\"t device\" x=\"{}\" y=\"{:.1}\">{}</text>",
                MARGIN + MARK,
                self.y - 9.0,
                escape(line),
            ));
        }
        self.labels.push_str("</g>\n");
        if !self.said.backends.contains(&backend) {
            self.said.backends.push(backend);
        }
    }

    /// Draws the ground of a lane at the current height, and its name.
    pub(super) fn band(&mut self, name: &str, beside: Option<&str>, height: f64) {
        let (left, top) = (self.left, self.y);
        self.bands.push_str(&format!(
            "<rect class=\"band\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\" rx=\"4\"/>\n",
            self.right - left,
        ));
        let room = left - MARGIN - MARK - BESIDE;
        let name = fit(name, NAME, room).unwrap_or_default();
        let y = top + LANE_PAD + 15.0;
        let x = MARGIN + MARK;
        self.labels.push_str(&format!(
            "<text class=\"t queue\" x=\"{x}\" y=\"{y:.1}\">{}</text>\n",
            escape(&name),
        ));
        if let Some(beside) = beside.and_then(|beside| fit(beside, SMALL, room)) {
            self.labels.push_str(&format!(
                "<text class=\"m\" x=\"{x}\" y=\"{:.1}\">{}</text>\n",
                y + 14.0,
                escape(&beside),
            ));
        }
        self.y += height + 4.0;
    }

    pub(super) fn thread(&mut self, name: &str, signals: &[usize]) {
        let top = self.y;
        self.band(name, None, 26.0);
        let y = top + 13.0;
        let mut drawn = f64::MIN;
        let mut signals: Vec<_> = signals.to_vec();
        signals.sort_by_key(|&index| self.recording.host_signals[index].at);
        for index in signals {
            let signal = &self.recording.host_signals[index];
            let at = self.since(signal.at);
            if !self.is_inside(at) {
                continue;
            }
            self.said.signals = true;
            let x = self.x(at);
            self.signals.insert(index, (x, y));
            if x - drawn < 0.5 {
                continue;
            }
            drawn = x;
            let what = format!(
                "{} = {} at {}",
                life::timeline(self.recording, signal.signal),
                signal.signal.value,
                words(at),
            );
            self.bars.push_str(&format!(
                "<path class=\"host\" d=\"M{x:.2} {:.1}l5 6.5l-5 6.5l-5 -6.5z\"><title>{}</title></path>\n",
                y - 6.5,
                escape(&what),
            ));
        }
    }

    pub(super) fn lane(&mut self, index: usize) {
        let recording = self.recording;
        let track = &recording.tracks[index];
        let mut runs: Vec<(i64, i64, usize)> = Vec::new();
        let mut befores: Vec<(i64, i64, usize)> = Vec::new();
        for (s, submission) in track.submissions.iter().enumerate() {
            let run = life::run(recording, submission);
            if let Some(run) = run
                && self.since(run.begin) <= self.window.to
                && self.since(run.end) >= self.window.from
            {
                runs.push((run.begin, run.end, s));
            }
            let before = life::before(recording, submission);
            if self.since(before.made) <= self.window.to
                && self.since(before.end) >= self.window.from
            {
                befores.push((before.made, before.end, s));
            }
        }
        runs.sort_unstable_by_key(|&(begin, _, s)| (begin, s));
        befores.sort_unstable_by_key(|&(made, _, s)| (made, s));
        self.said.shown += runs.len();

        let pixel = self.nanoseconds(1.0);
        // A run is at least a pixel wide, which would hide an overlap of a pixel.
        let mut bars = Rows::new(0, pixel.clamp(0, 1_000_000));
        let bars_at: Vec<_> = runs
            .iter()
            .map(|&(begin, end, _)| bars.place(begin, end))
            .collect();
        let mut strips = Rows::new(0, 0).at_most(STRIPS);
        let strips_at: Vec<usize> = befores
            .iter()
            .map(|&(made, end, _)| {
                // A time that is too short to be seen needs no line.
                let seen = i128::from(end) - i128::from(made) > i128::from(pixel);
                if seen {
                    strips.place(made, end).row
                } else {
                    usize::MAX
                }
            })
            .collect();
        let rows = bars.count().max(1);
        let strip_rows = strips.count();
        #[allow(clippy::cast_precision_loss, reason = "a few")]
        let (rows, strip_rows) = (rows as f64, strip_rows as f64);
        let bars_height = rows * (BAR + BAR_GAP) - BAR_GAP;
        let height = LANE_PAD * 2.0 + bars_height + strip_rows * (STRIP + STRIP_GAP);
        let top = self.y + LANE_PAD;
        let beside = self.beside(track);
        let beside_height = if beside.is_some() { 44.0 } else { 0.0 };
        self.band(&track.queue, beside.as_deref(), height.max(beside_height));
        if let Some(reason) = &track.untimed {
            let text = format!("no times of the device: {reason}");
            if runs.is_empty()
                && let Some(text) = fit(&text, SMALL, self.right - self.left - 20.0)
            {
                let (x, wide) = (self.left + 10.0, width(&text, SMALL));
                // Arrows between other lanes pass below it.
                self.labels.push_str(&format!(
                    "<rect class=\"band\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR}\"/>\
                     <text class=\"m\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>\n",
                    x - 4.0,
                    wide + 8.0,
                    top + 15.0,
                    escape(&text),
                ));
            }
        }
        let mut drawn: HashMap<usize, f64> = HashMap::new();
        for (&(_, _, s), placed) in runs.iter().zip(&bars_at) {
            #[allow(clippy::cast_precision_loss, reason = "a few")]
            let y = top + placed.row as f64 * (BAR + BAR_GAP);
            let last = drawn.entry(placed.row).or_insert(f64::MIN);
            let area = self.bar(index, s, y, *last);
            *last = last.max(area);
        }
        let mut drawn: HashMap<usize, f64> = HashMap::new();
        for (&(_, _, s), &row) in befores.iter().zip(&strips_at) {
            if row == usize::MAX {
                continue;
            }
            #[allow(clippy::cast_precision_loss, reason = "a few")]
            let y = top + bars_height + STRIP_GAP + row as f64 * (STRIP + STRIP_GAP);
            let last = drawn.entry(row).or_insert(f64::MIN);
            *last = self.strip(track, &track.submissions[s], y, *last);
        }
    }

    /// Returns the text under a queue's name.
    pub(super) fn beside(&mut self, track: &Track) -> Option<String> {
        self.said.lost = self.said.lost.saturating_add(track.lost);
        if let Some(reason) = &track.untimed {
            self.said.untimed.push(format!("{}: {reason}", track.queue));
        }
        match (&track.untimed, track.lost) {
            (None, 0) => None,
            (Some(_), 0) => Some("untimed".to_owned()),
            (None, lost) => Some(format!("{lost} lost")),
            (Some(_), lost) => Some(format!("untimed, {lost} lost")),
        }
    }

    pub(super) fn axis(&self, top: f64, bottom: f64) -> String {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a few, and not negative"
        )]
        let most = ((self.right - self.left) / 95.0) as u32;
        let axis = Axis::new(self.window.from, self.window.to, most);
        let mut out = String::new();
        for (at, label) in &axis.ticks {
            let x = self.x(*at);
            out.push_str(&format!(
                "<path class=\"grid\" d=\"M{x:.2} {:.1}V{bottom:.1}\"/>\
                 <text class=\"m\" x=\"{x:.2}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>\n",
                top + 2.0,
                top - 4.0,
            ));
        }
        if let Some(base) = &axis.base {
            out.push_str(&format!(
                "<text class=\"m\" x=\"{MARGIN}\" y=\"{:.1}\">{base} and</text>\n",
                top - 4.0
            ));
        }
        out
    }
}
