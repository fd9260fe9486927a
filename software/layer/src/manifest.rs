//! The manifest by which the Vulkan loader finds the layer.

use std::path::Path;

/// The text of a manifest for the layer's library at `library`.
///
/// A relative path begins at the directory of the manifest. The file's name must end in `.json`,
/// and its directory is given to the loader in `VK_ADD_LAYER_PATH` or `VK_LAYER_PATH`.
#[must_use]
pub fn manifest(library: &Path) -> String {
    format!(
        r#"{{
    "file_format_version": "1.1.2",
    "layer": {{
        "name": "VK_LAYER_SYNCLINE_software",
        "type": "GLOBAL",
        "library_path": "{}",
        "api_version": "1.3.0",
        "implementation_version": "1",
        "description": "Semaphores that are exported and imported, for software drivers",
        "device_extensions": [
            {{
                "name": "VK_KHR_external_semaphore_fd",
                "spec_version": "1",
                "entrypoints": ["vkGetSemaphoreFdKHR", "vkImportSemaphoreFdKHR"]
            }}
        ]
    }}
}}
"#,
        escape(&library.to_string_lossy())
    )
}

/// `text` as it stands between the quotes of a JSON string.
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
    fn the_file_beside_the_crate_is_such_a_text() {
        let file = include_str!("../VkLayer_syncline_software.json");
        let library = Path::new(".").join(crate::LIBRARY);
        assert_eq!(file, manifest(&library));
        assert!(file.contains(crate::LAYER_NAME.to_str().unwrap_or_default()));
    }

    #[test]
    fn odd_characters_in_a_path_are_escaped() {
        assert_eq!(escape("a\"b\\c\n"), "a\\\"b\\\\c\\u000a");
    }
}
