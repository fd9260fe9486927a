//! Former ids of cases that another case has taken over, so that recordings stay comparable.

/// Each former id, and the id of the case that shows the same.
const MERGED: &[(&str, &str)] = &[];

/// Returns the id of the case that shows what `id` shows or once showed.
#[must_use]
pub fn current(id: &str) -> &str {
    let found = MERGED.iter().find(|(former, _)| *former == id);
    found.map_or(id, |(_, current)| current)
}

/// Returns true if the id of a case, or one of its former ids, contains `part`.
#[must_use]
pub fn is_named(id: &str, part: &str) -> bool {
    let former = MERGED.iter().filter(|(_, current)| *current == id);
    id.contains(part) || former.into_iter().any(|(former, _)| former.contains(part))
}

/// Returns all former ids.
pub fn former() -> impl Iterator<Item = &'static str> {
    MERGED.iter().map(|(former, _)| *former)
}
