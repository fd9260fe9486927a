//! The picture: well-formed for any recording, and complete.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use crate::frames::frames;
use proptest::prelude::*;
use roxmltree::{Document, Node};
use rstest::rstest;
use syncline_core::trace::{Outcome, Recording};
use syncline_trace::svg::{Options, Picture};

fn picture(recording: &Recording, options: &Options) -> String {
    Picture::new(recording, options.clone()).to_string()
}

fn texts(document: &Document<'_>) -> Vec<String> {
    let texts = document
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text")));
    texts
        .filter_map(|text| text.text().map(str::to_owned))
        .collect()
}

fn classed<'a>(document: &'a Document<'_>, class: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    document
        .descendants()
        .filter(move |node| node.attribute("class") == Some(class))
}

/// Whether a mark is in the plot. The legend has groups of its own.
fn in_plot(node: &Node<'_, '_>) -> bool {
    node.ancestors()
        .all(|node| node.attribute("transform").is_none())
}

#[test]
fn every_frame_is_there_with_its_arrows() {
    let recording = frames(6);
    let svg = picture(&recording, &Options::default());
    let document = Document::parse(&svg).unwrap();
    for class in ["bar vulkan", "bar cuda"] {
        assert_eq!(classed(&document, class).count(), 12, "{class}");
    }
    assert_eq!(classed(&document, "bar host").count(), 6);
    // From drawing to filter, from copy to encoding, from the host to the last three drawings.
    assert_eq!(classed(&document, "far").filter(in_plot).count(), 6 + 6 + 3);
    assert_eq!(classed(&document, "near").filter(in_plot).count(), 6 + 6);
    let texts = texts(&document);
    for expected in [
        "5 queues of Vulkan, CUDA and the host",
        "all 30 submissions, 8.17 ms recorded",
        "Vulkan · NVIDIA H200",
        "graphics",
        "main",
        "draw 6",
        "held on the host",
        "signal to wait, across APIs",
    ] {
        assert!(
            texts.iter().any(|text| text == expected),
            "{expected}: {texts:?}"
        );
    }
    assert!(!texts.iter().any(|text| text == "failed"));
}

/// The numbers of a path, in their order.
fn numbers(path: &str) -> Vec<f64> {
    path.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'))
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// Points on a line of the picture, close to each other.
fn points(path: &str) -> Vec<(f64, f64)> {
    let at = numbers(path);
    // A grid line has two points, and an arrow is a curve with four.
    let ends: [(f64, f64); 4] = match at[..] {
        [x, y1, y2] => [(x, y1), (x, y1), (x, y2), (x, y2)],
        [a, b, c, d, e, f, g, h] => [(a, b), (c, d), (e, f), (g, h)],
        _ => panic!("{path}"),
    };
    let point = |step: i32| {
        let t = f64::from(step) / 256.0;
        let weights = [
            (1.0 - t).powi(3),
            3.0 * t * (1.0 - t).powi(2),
            3.0 * t.powi(2) * (1.0 - t),
            t.powi(3),
        ];
        let sum = |of: fn(&(f64, f64)) -> f64| {
            let parts = ends.iter().zip(weights);
            parts.map(|(end, weight)| of(end) * weight).sum::<f64>()
        };
        (sum(|end| end.0), sum(|end| end.1))
    };
    (0..=256).map(point).collect()
}

/// No line crosses a name, and the labels of runs are above all lines.
#[rstest]
#[case::wide(1280, "NVIDIA H200")]
#[case::narrow(480, "NVIDIA H200")]
#[case::long_name(1280, "llvmpipe (LLVM 15.0.6, 256 bits) (software)")]
fn nothing_crosses_a_label(#[case] width: u32, #[case] device: &str) {
    let mut recording = frames(20);
    for track in &mut recording.tracks {
        track.device = device.into();
    }
    let options = Options {
        width,
        ..Options::default()
    };
    let svg = picture(&recording, &options);
    let document = Document::parse(&svg).unwrap();
    let lines: Vec<Node<'_, '_>> = ["halo", "near", "far", "grid"]
        .iter()
        .flat_map(|class| classed(&document, class).filter(in_plot))
        .collect();
    assert!(lines.len() > 80, "{}", lines.len());
    let number = |node: Node<'_, '_>, name| node.attribute(name).unwrap().parse::<f64>().unwrap();
    let texts = document.descendants().filter(|node| {
        let class = node.attribute("class").unwrap_or_default();
        class.starts_with("t device") || class.starts_with("t queue")
    });
    let mut seen = 0;
    for text in texts {
        let (left, base) = (number(text, "x"), number(text, "y"));
        let said = text.text().unwrap();
        // Bold text of DejaVu Sans, which is a wide font, is 7.3 pixels a character here.
        let right = left + 7.3 * said.chars().count() as f64;
        let mut crossing = lines
            .iter()
            .flat_map(|line| points(line.attribute("d").unwrap()));
        let is_crossed = crossing
            .any(|(x, y)| (left..right).contains(&x) && (base - 9.0..base + 3.0).contains(&y));
        assert!(!is_crossed, "{said} at {left}, {base}");
        seen += 1;
    }
    assert!(seen >= 9, "{seen}");
    let last = lines.iter().map(|line| line.range().end).max().unwrap();
    for bar in ["bar vulkan", "bar cuda", "bar host"] {
        for bar in classed(&document, bar).filter(in_plot) {
            assert!(bar.range().start > last, "a line is above a run");
        }
    }
}

#[test]
fn arrows_run_forward_in_time() {
    let svg = picture(
        &frames(20),
        &Options {
            submissions: 1000,
            ..Options::default()
        },
    );
    let document = Document::parse(&svg).unwrap();
    let number = |node: Node<'_, '_>, name| node.attribute(name).unwrap().parse::<f64>().unwrap();
    let bars: Vec<(f64, f64)> = ["bar vulkan", "bar cuda", "bar host"]
        .iter()
        .flat_map(|class| classed(&document, class).filter(in_plot))
        .map(|bar| (number(bar, "x"), number(bar, "x") + number(bar, "width")))
        .collect();
    let signals: Vec<f64> = classed(&document, "host")
        .filter(|mark| in_plot(mark) && mark.has_tag_name(("http://www.w3.org/2000/svg", "path")))
        .map(|mark| {
            mark.attribute("d").unwrap()[1..]
                .split(' ')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    let mut seen = 0;
    for arrow in classed(&document, "far")
        .chain(classed(&document, "near"))
        .filter(in_plot)
    {
        let path = arrow.attribute("d").unwrap();
        let numbers = numbers(path);
        let (from, to) = (numbers[0], numbers[6]);
        assert!(to >= from, "{path}");
        // From the end of a run, or a signal of the host, to the beginning of another.
        let near = |at: f64, edge: f64| (at - edge).abs() < 4.0;
        assert!(
            bars.iter().any(|&(_, end)| near(from, end))
                || signals.iter().any(|&at| near(from, at)),
            "{path}"
        );
        assert!(bars.iter().any(|&(begin, _)| near(to, begin)), "{path}");
        seen += 1;
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn of_a_long_recording_the_middle_is_drawn_and_said() {
    let recording = frames(400);
    let svg = picture(&recording, &Options::default());
    let document = Document::parse(&svg).unwrap();
    let texts = texts(&document);
    let which = texts
        .iter()
        .find(|text| text.contains("of 2000 submissions"))
        .unwrap();
    let shown: usize = which.split(' ').next().unwrap().parse().unwrap();
    assert!((48..60).contains(&shown), "{which}");
    assert!(texts.iter().any(|text| text == "draw 200"), "{texts:?}");
    assert!(svg.len() < 100_000);
    // The whole recording on request. The width bounds the size of the text.
    let all = Options {
        from: Some(0),
        to: Some(1_000_000_000),
        width: 480,
        ..Options::default()
    };
    let svg = picture(&frames(4000), &all);
    let document = Document::parse(&svg).unwrap();
    assert!(svg.contains("narrower than half a pixel"));
    assert!(classed(&document, "bar cuda").count() < 2 * 2 * 480);
}

#[test]
fn a_window_is_kept() {
    let recording = frames(6);
    let options = Options {
        from: Some(2_000_000),
        to: Some(3_000_000),
        title: Some("<one> & \"two\"".into()),
        ..Options::default()
    };
    let svg = picture(&recording, &options);
    let document = Document::parse(&svg).unwrap();
    let texts = texts(&document);
    assert!(texts.iter().any(|text| text == "<one> & \"two\""));
    assert!(
        texts
            .iter()
            .any(|text| text
                .ends_with("of 30 submissions: 2.00 ms to 3.00 ms of the 8.17 ms recorded")),
        "{texts:?}"
    );
    for bar in classed(&document, "bar cuda") {
        let at = |name| bar.attribute(name).unwrap().parse::<f64>().unwrap();
        assert!(at("x") >= 100.0 && at("x") + at("width") <= 1280.0 - 23.0);
    }
}

#[test]
fn what_did_not_end_well_is_said_and_looks_different() {
    let mut recording = frames(4);
    recording.tracks[2].submissions[1].outcome = Outcome::Failed("gone & lost".into());
    recording.tracks[2].lost = 7;
    recording.host_lost = 3;
    let last = &mut recording.tracks[4].submissions[3];
    (last.outcome, last.ended) = (Outcome::Pending, None);
    recording.tracks[1].untimed = Some("no valid bits".into());
    for submission in &mut recording.tracks[1].submissions {
        (submission.began, submission.ended) = (None, None);
    }
    let begun = recording.begun;
    recording.tracks[2].submissions[2]
        .began
        .as_mut()
        .unwrap()
        .nanoseconds = begun;
    let svg = picture(&recording, &Options::default());
    let document = Document::parse(&svg).unwrap();
    let texts = texts(&document);
    for expected in [
        "failed",
        "had not ended",
        "times unknown",
        "against the order of time",
        "7 lost",
        "untimed",
        "failed: filter 2 on filter: gone & lost",
        "3 signals of the host are missing: the recorder had no room for them",
        "7 submissions are missing: the recorder had no room for them",
        "no times of the device: transfer: no valid bits",
        "1 wait was over before its signal, beyond what the clocks' errors allow",
    ] {
        assert!(
            texts.iter().any(|text| text == expected),
            "{expected}: {texts:?}"
        );
    }
    assert_eq!(classed(&document, "against").filter(in_plot).count(), 1);
    assert_eq!(classed(&document, "fail").filter(in_plot).count(), 2);
}

#[test]
fn it_stands_by_itself() {
    let svg = picture(&frames(6), &Options::default());
    let document = Document::parse(&svg).unwrap();
    for node in document.descendants() {
        let name = node.tag_name().name();
        assert!(
            !matches!(name, "script" | "image" | "use" | "foreignObject" | "a"),
            "{name}"
        );
        for attribute in node.attributes() {
            assert!(!attribute.name().starts_with("on"), "{}", attribute.name());
            assert!(!attribute.name().contains("href"));
            assert!(
                !attribute.value().contains("NaN") && !attribute.value().contains("inf"),
                "{}",
                attribute.value()
            );
        }
    }
    assert!(!svg.contains("@import") && !svg.contains("@font-face") && !svg.contains("url(h"));
    assert_eq!(svg, picture(&frames(6), &Options::default()));
}

#[test]
fn an_empty_recording_is_a_picture_too() {
    let svg = picture(&Recording::default(), &Options::default());
    let document = Document::parse(&svg).unwrap();
    assert!(
        texts(&document)
            .iter()
            .any(|text| text == "An empty recording")
    );
}

fn options() -> impl Strategy<Value = Options> {
    let time = || {
        proptest::option::weighted(
            0.4,
            prop_oneof![any::<i64>(), 0..1000_i64, Just(i64::MIN), Just(i64::MAX)],
        )
    };
    let title = proptest::option::of(".{0,30}");
    (title, time(), time(), any::<u16>(), 0..40_usize).prop_map(
        |(title, from, to, width, submissions)| Options {
            title,
            from,
            to,
            width: width.into(),
            submissions,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_recording_makes_a_picture(recording in crate::random::recording(), options in options()) {
        let svg = picture(&recording, &options);
        let document = Document::parse(&svg);
        prop_assert!(document.is_ok(), "{:?}\n{}", document.err(), svg);
        let document = document.unwrap();
        for node in document.descendants() {
            for name in ["x", "y", "width", "height", "cx", "cy"] {
                if let Some(value) = node.attribute(name) {
                    let value: f64 = value.parse().unwrap();
                    prop_assert!(value.is_finite() && value.abs() < 1e6, "{} {}", name, value);
                    prop_assert!(value >= 0.0 || !matches!(name, "width" | "height"), "{} {}", name, value);
                }
            }
        }
        prop_assert_eq!(svg, picture(&recording, &options));
    }
}
