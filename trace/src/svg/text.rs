//! Text in a picture: its width, and what XML allows.

/// Escapes text for elements and attributes.
///
/// Characters that XML forbids become a replacement character, and white space becomes a space.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                escaped.push(char::REPLACEMENT_CHARACTER);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// Estimates the width in pixels. The reader's font is unknown, so this assumes a wide one.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|c| size * em(c)).sum()
}

fn em(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | 'I' | '\'' | '|' | '!' | '.' | ',' | ':' | ';' | ' ' => 0.33,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.98,
        'A'..='Z' | '0'..='9' | '#' => 0.68,
        c if c < '\u{1100}' => 0.62,
        _ => 1.1,
    }
}

/// Cuts text to a width, with an ellipsis. `None` if fewer than two characters would be left.
pub(super) fn fit(text: &str, size: f64, room: f64) -> Option<String> {
    if text.trim().is_empty() || room <= 0.0 {
        return None;
    }
    if width(text, size) <= room {
        return Some(text.to_owned());
    }
    let room = room - size * em('…');
    let mut fitted = String::new();
    let mut used = 0.0;
    for c in text.chars() {
        used += size * em(c);
        if used > room {
            break;
        }
        fitted.push(c);
    }
    let fitted = fitted.trim_end();
    (fitted.chars().count() >= 2).then(|| format!("{fitted}…"))
}

/// Breaks text into at most two lines, at a space where that is possible, and cuts the last line.
pub(super) fn wrap(text: &str, size: f64, room: f64) -> Vec<String> {
    let spaces = text.char_indices().filter(|&(_, c)| c == ' ');
    let fits = |&at: &usize| width(&text[..at], size) <= room;
    match spaces.map(|(at, _)| at).rfind(fits) {
        Some(at) if width(text, size) > room => {
            let rest = fit(&text[at + 1..], size, room);
            [Some(text[..at].to_owned()), rest]
                .into_iter()
                .flatten()
                .collect()
        }
        _ => fit(text, size, room).into_iter().collect(),
    }
}

/// Fits a run's name: all of it, or else the number at its end, or else its beginning.
///
/// The number distinguishes a run from its neighbours.
pub(super) fn fit_name(name: &str, size: f64, room: f64) -> Option<String> {
    if width(name, size) > room
        && let Some((_, number)) = name.rsplit_once([' ', '#', '-', '_', ':'])
        && number.starts_with(|c: char| c.is_ascii_digit())
        && width(number, size) <= room
    {
        return Some(number.to_owned());
    }
    fit(name, size, room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_xml_reserves_or_forbids_are_replaced() {
        assert_eq!(
            escape("<a&\"b\">\u{0}\u{7f}\n\u{ffff}é"),
            "&lt;a&amp;&quot;b&quot;&gt;\u{fffd}\u{fffd} \u{fffd}é"
        );
    }

    #[test]
    fn text_is_cut_to_its_width() {
        assert_eq!(fit("frame 12", 10.0, 100.0).as_deref(), Some("frame 12"));
        let cut = fit("a very long label", 10.0, 50.0).unwrap();
        assert!(cut.ends_with('…') && width(&cut, 10.0) <= 50.0, "{cut}");
        assert_eq!(fit("frame 12", 10.0, 12.0), None);
        assert_eq!(fit("  ", 10.0, 100.0), None);
        let name = "Vulkan · llvmpipe (LLVM 15.0.6, 256 bits)";
        assert_eq!(wrap(name, 10.0, 400.0), [name]);
        assert_eq!(
            wrap(name, 10.0, 150.0),
            ["Vulkan · llvmpipe (LLVM", "15.0.6, 256 bits)"]
        );
        assert_eq!(
            wrap(name, 10.0, 100.0),
            ["Vulkan · llvmpipe", "(LLVM 15.0.6, 2…"]
        );
        assert_eq!(
            fit_name("frame 12", 10.0, 100.0).as_deref(),
            Some("frame 12")
        );
        assert_eq!(fit_name("frame 12", 10.0, 30.0).as_deref(), Some("12"));
        assert_eq!(fit_name("frame 12", 10.0, 12.0), None);
    }
}
