//! Colours, and the patterns made of them.

use syncline_core::info::BackendKind;

/// A name for classes and patterns.
pub(super) const fn class(backend: BackendKind) -> &'static str {
    match backend {
        BackendKind::Host => "host",
        BackendKind::Cuda => "cuda",
        BackendKind::Vulkan => "vulkan",
        _ => "other",
    }
}

/// Colours of runs, and of the time before them on a light and on a dark background.
///
/// Runs have white text on them. The colour-blind can distinguish any two APIs.
const COLOURS: [(&str, &str, &str, &str); 4] = [
    ("host", "#4a55d2", "#a4aae9", "#7d88f2"),
    ("cuda", "#007f5c", "#8cc8b7", "#2fb088"),
    ("vulkan", "#bf4f00", "#e3b48f", "#ef8a45"),
    ("other", "#9a2f7d", "#d3a1c6", "#d872bb"),
];

/// Light, then dark: ground, band, text, text beside, grid, arrows within an API, failure.
const GROUNDS: [[&str; 7]; 2] = [
    [
        "#ffffff", "#f4f6f8", "#1c2128", "#59636e", "#d5dbe1", "#7d8791", "#c4161c",
    ],
    [
        "#10151c", "#1a212b", "#e8edf2", "#9aa5b1", "#303a46", "#8793a0", "#ff7b72",
    ],
];

fn ground(dark: bool) -> String {
    let [ground, band, text, beside, grid, near, failed] = GROUNDS[usize::from(dark)];
    let mut style = format!(
        ".ground{{fill:{ground}}}.edge{{stroke:{grid}}}.band{{fill:{band}}}.t{{fill:{text}}}.m{{fill:{beside}}}.grid{{stroke:{grid}}}.halo{{stroke:{ground}}}.near{{stroke:{near}}}.nearh{{fill:{near}}}\
         .far{{stroke:{text}}}.farh{{fill:{text}}}.fail{{stroke:{failed};fill:{ground}}}.failt{{fill:{failed}}}.against{{stroke:{failed}}}"
    );
    let opacity = if dark { ".6" } else { "1" };
    for (name, colour, light_soft, dark_soft) in COLOURS {
        let (soft, line) = if dark {
            (dark_soft, dark_soft)
        } else {
            (light_soft, colour)
        };
        style.push_str(&format!(
            ".{name}-soft{{fill:{soft};fill-opacity:{opacity}}}.{name}-stripe{{fill:{line}}}.{name}-line{{stroke:{line};stroke-width:1.2;fill:none}}"
        ));
    }
    style
}

/// The style sheet and the patterns.
pub(super) fn definitions() -> String {
    let mut style = String::from(
        "text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',Helvetica,Arial,sans-serif;font-size:11px}\
         .title{font-size:16px;font-weight:600}.device{font-size:12px;font-weight:600}.queue{font-size:12px}\
         .bar{stroke:none}.in{fill:#fff}.halo,.near,.far,.against{fill:none}.halo{stroke-width:4;stroke-opacity:.75}\
         .near{stroke-width:1.1}.far{stroke-width:1.5}.against{stroke-width:1.5;stroke-dasharray:4 3}.fail{stroke-width:1.4}",
    );
    for (name, colour, ..) in COLOURS {
        style.push_str(&format!(".{name}{{fill:{colour}}}"));
    }
    style.push_str(&ground(false));
    style.push_str(&format!(
        "@media(prefers-color-scheme:dark){{{}}}",
        ground(true)
    ));
    let mut definitions = format!("<style>{style}</style>\n<defs>");
    for (name, ..) in COLOURS {
        definitions.push_str(&format!(
            "<pattern id=\"held-{name}\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
             <rect class=\"{name}-soft\" width=\"5\" height=\"5\" opacity=\".4\"/><rect class=\"{name}-stripe\" width=\"2\" height=\"5\"/></pattern>"
        ));
    }
    definitions.push_str("</defs>\n");
    definitions
}

#[cfg(test)]
mod tests {
    use super::*;

    type Triple = [f64; 3];

    /// How linear red, green and blue are seen by most people and by the colour-blind.
    ///
    /// The latter are protanopes, deuteranopes and tritanopes (Machado and others, 2009).
    const EYES: [[Triple; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
        [
            [1.255_528, -0.076_749, -0.178_779],
            [-0.078_411, 0.930_809, 0.147_602],
            [0.004_733, 0.691_367, 0.303_900],
        ],
    ];

    fn linear(colour: &str) -> Triple {
        [1, 3, 5].map(|at| {
            let part = u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
            let part = f64::from(part) / 255.0;
            if part <= 0.040_45 {
                part / 12.92
            } else {
                ((part + 0.055) / 1.055).powf(2.4)
            }
        })
    }

    fn luminance([red, green, blue]: Triple) -> f64 {
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (
            luminance(linear(one)) + 0.05,
            luminance(linear(other)) + 0.05,
        );
        one.max(other) / one.min(other)
    }

    /// Converts to CIE L*a*b*, in which distances correspond to differences that people see.
    fn lab(seen: Triple) -> Triple {
        let [red, green, blue] = seen.map(|part| part.clamp(0.0, 1.0));
        let x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.950_47;
        let y = luminance([red, green, blue]);
        let z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.088_83;
        let [x, y, z] = [x, y, z].map(|t: f64| {
            if t > 0.008_856 {
                t.cbrt()
            } else {
                7.787 * t + 16.0 / 116.0
            }
        });
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn any_two_apis_can_be_distinguished_by_the_colour_blind_too() {
        for eye in EYES {
            let seen = COLOURS.map(|(name, colour, ..)| {
                let linear = linear(colour);
                let part = |row: Triple| row.iter().zip(linear).map(|(a, b)| a * b).sum();
                (name, lab(eye.map(part)))
            });
            for (at, (one, a)) in seen.iter().enumerate() {
                for (other, b) in &seen[at + 1..] {
                    let apart: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
                    assert!(apart.sqrt() > 20.0, "{one} and {other}: {}", apart.sqrt());
                }
            }
        }
    }

    #[test]
    fn text_is_readable_and_runs_are_visible() {
        for (name, colour, ..) in COLOURS {
            assert!(contrast(colour, "#ffffff") >= 4.5, "{name}");
            for ground in GROUNDS {
                assert!(
                    contrast(colour, ground[1]) >= 2.3,
                    "{name} on {}",
                    ground[1]
                );
            }
        }
        for [ground, band, text, beside, _, near, failed] in GROUNDS {
            for (said, least) in [(text, 7.0), (beside, 4.5), (failed, 4.5), (near, 3.0)] {
                assert!(contrast(said, ground) >= least, "{said} on {ground}");
                assert!(contrast(said, band) >= least, "{said} on {band}");
            }
        }
    }
}
