//! The manifest with which the Vulkan loader finds the layer.

use std::path::Path;

/// Returns the text of a manifest for the layer's library at `library`.
///
/// A relative path begins at the directory of the manifest. The file's name must end in `.json`,
/// and its directory is given to the loader in `VK_ADD_LAYER_PATH` or `VK_LAYER_PATH`.
#[must_use]
pub fn manifest(library: &Path) -> String {
    let beside = format!("./{}", crate::LIBRARY);
    let library = escape(&library.to_string_lossy());
    include_str!("../VkLayer_syncline_software.json").replace(&beside, &library)
}

/// Returns `text` in the form that a JSON string needs between its quotes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => escaped.extend(['\\', character]),
            '\0'..='\u{1f}' => escaped.push_str(&format!("\\u{:04x}", u32::from(character))),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_of_the_file_is_replaced() {
        let text = manifest(Path::new("/some/library.so"));
        assert!(text.contains(r#""library_path": "/some/library.so","#));
        assert!(text.contains(crate::LAYER_NAME.to_str().unwrap_or_default()));
    }

    #[test]
    fn odd_characters_in_a_path_are_escaped() {
        assert_eq!(escape("a\"b\\c\n"), "a\\\"b\\\\c\\u000a");
    }
}
