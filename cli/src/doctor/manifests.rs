//! The checks of the manifests (ICDs) by which the Vulkan loader finds drivers.
#![allow(unsafe_code, reason = "loads the library of a driver")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use libloading::Library;

use super::checks::Outcome;
use super::facts::{Facts, GPUS, variable};

/// Where the loader looks, and what it finds there.
struct Search {
    /// The variable that replaces the usual folders, if it is set.
    variable: Option<&'static str>,
    /// The folders or files, for messages.
    places: Vec<PathBuf>,
    /// The manifests that exist.
    files: Vec<PathBuf>,
    /// Files that a variable names and that do not exist.
    missing: Vec<PathBuf>,
}

impl Search {
    fn new(facts: &Facts) -> Self {
        // The loader does not read the second variable where the first is set.
        let lists = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];
        let chosen = lists
            .into_iter()
            .find_map(|name| Some((name, variable(name)?)));
        let places: Vec<_> = match &chosen {
            Some((_, list)) => paths(list),
            None => {
                let added = paths(&variable("VK_ADD_DRIVER_FILES").unwrap_or_default());
                added.into_iter().chain(folders(facts)).collect()
            }
        };
        let mut search = Self {
            variable: chosen.map(|(name, _)| name),
            files: Vec::new(),
            missing: Vec::new(),
            places,
        };
        for place in &search.places {
            if place.is_dir() {
                search.files.extend(manifests_of(place));
            } else if place.exists() {
                search.files.push(place.clone());
            } else if search.variable.is_some() {
                search.missing.push(place.clone());
            }
        }
        search
    }

    /// Folders into which containers and distributions put drivers, and in which no loader looks.
    fn elsewhere(facts: &Facts) -> Self {
        let folders = ["usr/local/nvidia", "run/opengl-driver"];
        let places = folders.map(|folder| facts.path(folder).join("share/vulkan/icd.d"));
        Self {
            variable: None,
            files: places
                .iter()
                .flat_map(|place| manifests_of(place))
                .collect(),
            missing: Vec::new(),
            places: places.into(),
        }
    }

    /// The manifests of the driver that is needed.
    fn wanted<'s>(&'s self, facts: &Facts) -> impl Iterator<Item = &'s Path> {
        let software = facts.is_software();
        let parts: &[&str] = if software {
            &["lvp", "swiftshader"]
        } else {
            &["nvidia"]
        };
        let is_wanted = |path: &&Path| {
            let library = library_of(path).unwrap_or_default();
            let names = [file_name(path), library.to_lowercase()];
            parts
                .iter()
                .any(|part| names.iter().any(|name| name.contains(part)))
        };
        self.files.iter().map(PathBuf::as_path).filter(is_wanted)
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase()
}

fn paths(list: &str) -> Vec<PathBuf> {
    let paths = env::split_paths(list);
    paths.filter(|path| !path.as_os_str().is_empty()).collect()
}

fn list(paths: &[PathBuf]) -> String {
    let paths = paths.iter().map(|path| path.display().to_string());
    paths.collect::<Vec<_>>().join(", ")
}

/// The usual folders, of the loader's documentation.
fn folders(facts: &Facts) -> Vec<PathBuf> {
    let home = variable("HOME").map(PathBuf::from);
    let own = |name: &str, below: &str| {
        let folder = variable(name).map(PathBuf::from);
        folder.or_else(|| Some(home.as_ref()?.join(below)))
    };
    let shared = |name: &str, usual: &[&str]| match variable(name) {
        Some(list) => paths(&list),
        None => usual.iter().map(|folder| facts.path(folder)).collect(),
    };
    let mut folders: Vec<PathBuf> = own("XDG_CONFIG_HOME", ".config").into_iter().collect();
    folders.extend(shared("XDG_CONFIG_DIRS", &["etc/xdg"]));
    folders.push(facts.path("etc"));
    folders.extend(own("XDG_DATA_HOME", ".local/share"));
    folders.extend(shared("XDG_DATA_DIRS", &["usr/local/share", "usr/share"]));
    folders
        .iter()
        .map(|folder| folder.join("vulkan/icd.d"))
        .collect()
}

fn manifests_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    let is_manifest = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
    let mut files: Vec<_> = files.filter(is_manifest).collect();
    files.sort();
    files
}

/// The library that a manifest names, or the reason why it cannot be read.
fn library_of(manifest: &Path) -> Result<String, String> {
    let text = fs::read_to_string(manifest).map_err(|error| error.to_string())?;
    let parsed = serde_json::from_str::<serde_json::Value>(&text);
    let parsed = parsed.map_err(|error| error.to_string())?;
    let library = parsed["ICD"]["library_path"].as_str();
    library
        .map(str::to_owned)
        .ok_or_else(|| "it has no ICD.library_path".into())
}

/// True if a list such as `*nvidia*,lvp_icd.json` has the name of the file.
fn matches(patterns: &str, name: &str) -> bool {
    patterns.split(',').any(|pattern| {
        let pattern = pattern.trim().to_lowercase();
        let inner = pattern.trim_matches('*');
        match (pattern.starts_with('*'), pattern.ends_with('*')) {
            _ if pattern == "~all~" || pattern == "*" => true,
            _ if inner.is_empty() => false,
            (true, true) => name.contains(inner),
            (true, false) => name.ends_with(inner),
            (false, true) => name.starts_with(inner),
            (false, false) => name == inner,
        }
    })
}

/// The name of the driver that is needed, in words.
fn driver(facts: &Facts) -> &'static str {
    if facts.is_software() {
        "a driver in software"
    } else {
        "NVIDIA's driver"
    }
}

pub(super) fn environment(facts: &Facts) -> Outcome {
    if facts.has_vulkan() {
        return Outcome::ok("the loader has found the driver");
    }
    let search = Search::new(facts);
    let wanted: Vec<_> = search.wanted(facts).collect();
    if let Some(variable) = search.variable
        && wanted.is_empty()
    {
        let what = if search.missing.is_empty() {
            format!(
                "{variable} names {}, and no manifest of {}",
                list(&search.places),
                driver(facts)
            )
        } else {
            format!(
                "{variable} names {}, which does not exist",
                list(&search.missing)
            )
        };
        let fix = format!(
            "Take it out of the environment (`unset {variable}`), or let it name the manifest of {}.",
            driver(facts)
        );
        return Outcome::found(what, fix);
    }
    let is_out = |name: &str, is_out: fn(&str, &str) -> bool| {
        let value = variable(name)?;
        let mut left = wanted.iter().map(|path| file_name(path));
        let none_left = !wanted.is_empty() && left.all(|file| is_out(&value, &file));
        none_left.then(|| (name.to_owned(), value))
    };
    let hidden = is_out("VK_LOADER_DRIVERS_DISABLE", matches).or_else(|| {
        is_out("VK_LOADER_DRIVERS_SELECT", |value, file| {
            !matches(value, file)
        })
    });
    if let Some((variable, value)) = hidden {
        return Outcome::found(
            format!(
                "{variable} is \"{value}\", which leaves out {}",
                driver(facts)
            ),
            format!("Take it out of the environment: `unset {variable}`."),
        );
    }
    Outcome::ok(match search.variable {
        Some(variable) => format!("{variable} names {}", driver(facts)),
        None => "no variable replaces the folders in which the loader looks".into(),
    })
}

/// What installs the Vulkan driver.
fn install(facts: &Facts) -> String {
    if facts.is_software() {
        "Install a driver in software (Debian and Ubuntu: `apt install mesa-vulkan-drivers`)."
            .into()
    } else if facts.is_in_container() {
        format!(
            "Give the container the Vulkan driver of the host (capability \"graphics\"): start it with {GPUS}."
        )
    } else {
        format!(
            "Install the Vulkan part of NVIDIA's driver (Debian: `apt install nvidia-vulkan-icd`; Ubuntu: \
             `apt install libnvidia-gl-{}`).",
            facts.series()
        )
    }
}

pub(super) fn manifest(facts: &Facts) -> Outcome {
    if facts.has_vulkan() {
        return Outcome::ok("the loader has found it");
    }
    let search = Search::new(facts);
    let mut unreadable = None;
    for manifest in search.wanted(facts) {
        match library_of(manifest) {
            Ok(_) => return Outcome::ok(format!("{} is there", manifest.display())),
            Err(reason) => unreadable = Some((manifest, reason)),
        }
    }
    if let Some(manifest) = Search::elsewhere(facts).wanted(facts).next() {
        let path = manifest.display();
        return Outcome::found(
            format!(
                "the manifest of {} is {path}, where the loader does not look",
                driver(facts)
            ),
            format!("Name it to the loader: `export VK_DRIVER_FILES={path}`."),
        );
    }
    let what = match unreadable {
        Some((manifest, reason)) => format!("{} cannot be read: {reason}", manifest.display()),
        None => format!(
            "{} has no manifest in {}",
            driver(facts),
            list(&search.places)
        ),
    };
    Outcome::found(what, install(facts))
}

pub(super) fn library(facts: &Facts) -> Outcome {
    if facts.has_vulkan() {
        return Outcome::ok("the loader has loaded it");
    }
    let search = Search::new(facts);
    let mut reasons = Vec::new();
    for manifest in search.wanted(facts) {
        let Ok(named) = library_of(manifest) else {
            continue;
        };
        // A path with a slash is relative to the manifest. A mere name is searched for.
        let library = match manifest.parent() {
            Some(folder) if named.contains('/') => folder.join(&named),
            _ => PathBuf::from(&named),
        };
        // SAFETY: the loader loads the same library, and its initializers are trusted as there.
        match unsafe { Library::new(&library) } {
            Ok(_) => return Outcome::ok(format!("{named} can be loaded")),
            Err(error) => reasons.push(format!("{} names {named}: {error}", manifest.display())),
        }
    }
    let fix = format!(
        "If the text names another library, install that (Debian and Ubuntu: `apt install libx11-6 libxext6`). Otherwise: {}",
        install(facts)
    );
    Outcome::found(reasons.join("; "), fix)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("*nvidia*", true)]
    #[case("NVIDIA*", true)]
    #[case("*.json", true)]
    #[case("lvp*, nvidia_icd.json", true)]
    #[case("~all~", true)]
    #[case("nvidia", false)]
    #[case("*nvidia", false)]
    #[case("", false)]
    fn patterns_match_as_the_loader_matches_them(#[case] patterns: &str, #[case] expected: bool) {
        assert_eq!(matches(patterns, "nvidia_icd.json"), expected);
    }
}
