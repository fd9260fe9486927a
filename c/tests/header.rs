//! The header is what this crate says, and compiles as C11 and C++17 with all warnings.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::path::Path;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// With the environment variable `SYNCLINE_C_WRITE` it writes the header.
#[test]
fn the_header_is_made_from_the_crate() {
    let root = Path::new(ROOT);
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let made = cbindgen::Builder::new()
        .with_crate(root)
        .with_config(config)
        .generate()
        .expect("cbindgen reads the crate");
    let mut text = Vec::new();
    made.write(&mut text);
    // rustc's lints want these headings, and C has no such word.
    let text = String::from_utf8(text).unwrap();
    let text = text.replace("// # Safety\n//\n", "");
    // The head of the header says these for all functions.
    let told = [
        "`label` is null, or a text that ends with a zero byte.",
        "`info` points to a structure whose size is set.",
        "`info` is null, or points to a structure whose size is set.",
        "`handles` points to a structure whose size is set.",
        "`points` has `count` elements.",
        "`name` is a text that ends with a zero byte.",
    ];
    let text = told.iter().fold(text, |text, told| {
        let alone = format!("//\n// {told}\n");
        text.replace(&alone, "")
    });
    let path = root.join("include/syncline.h");
    if std::env::var_os("SYNCLINE_C_WRITE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        committed, text,
        "SYNCLINE_C_WRITE=1 cargo test -p syncline-c --test header"
    );
}

/// A comment or a document must not name a function that the header lacks.
#[test]
fn the_names_in_the_documents_exist() {
    let root = Path::new(ROOT);
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let header = read("include/syncline.h");
    let code: String = header
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect();
    let names = |text: &str| -> std::collections::BTreeSet<String> {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| word.starts_with("sl_") && word.len() > 3)
            .map(String::from)
            .collect()
    };
    let declared = names(&code);
    for path in ["include/syncline.h", "include/syncline.hpp", "../docs/c.md"] {
        let missing: Vec<_> = names(&read(path)).difference(&declared).cloned().collect();
        assert!(missing.is_empty(), "{path} names {missing:?}");
    }
}

/// C++ has all of C.
#[test]
fn every_function_has_a_wrapper() {
    let read = |path: &str| std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
    let (header, wrappers) = (read("include/syncline.h"), read("include/syncline.hpp"));
    let words = |line: &str| -> Vec<String> {
        let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.map(String::from).collect()
    };
    let code = wrappers
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let wrapped: std::collections::BTreeSet<String> = code.flat_map(words).collect();
    let declared = header
        .lines()
        .filter(|line| line.starts_with("sl_result sl_") || line.contains("_t sl_"))
        .chain(
            header
                .lines()
                .filter(|line| line.starts_with("const char *sl_")),
        )
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next());
    let mut count = 0;
    for function in declared {
        assert!(wrapped.contains(function), "syncline.hpp lacks {function}");
        count += 1;
    }
    assert!(count > 100, "found {count} functions");
}

/// Programs that include the header before and after those of the APIs.
const ORDERS: [&str; 3] = [
    "#include \"syncline.h\"\n",
    "#include \"syncline.h\"\n#include <vulkan/vulkan.h>\n#include \"cuda_part.h\"\n",
    "#include \"cuda_part.h\"\n#include <vulkan/vulkan.h>\n#include \"syncline.h\"\n",
];

/// A call that needs the types of both headers to be the same.
const USE: &str = "
sl_result use_them(VkDevice device, PFN_vkGetInstanceProcAddr loader, CUcontext context);
sl_result use_them(VkDevice device, PFN_vkGetInstanceProcAddr loader, CUcontext context) {
  sl_device made;
  sl_vulkan_adopt_info info = {sizeof info, loader, 0, 0, device, 0, 0, {1, 1, 1, 1, {0}}};
  sl_device_adopt_vulkan(&info, 0, 0, &made);
  return sl_device_adopt_cuda(context, 0, 0, &made);
}
";

/// The programs in `docs/c.md`.
#[test]
fn the_code_of_the_document_compiles() {
    let text = std::fs::read_to_string(Path::new(ROOT).join("../docs/c.md")).unwrap();
    let mut found = 0;
    for block in text.split("\n```").skip(1) {
        let (language, code) = block.split_once('\n').unwrap_or_default();
        let (compiler, standard) = match language {
            "c" => ("cc", "-std=c11"),
            "cpp" => ("c++", "-std=c++17"),
            _ => continue,
        };
        found += 1;
        let name = format!("document-{found}.{language}");
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&source, code).unwrap();
        let output = Command::new(compiler)
            .args([
                standard,
                "-Wall",
                "-Wextra",
                "-Werror",
                "-Wno-unused-function",
            ])
            .args(["-fsyntax-only", "-Iinclude", "-Itests/cases", "-Iexamples"])
            .arg(&source)
            .current_dir(ROOT)
            .output()
            .expect("a compiler is installed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{code}\n{errors}");
    }
    assert_eq!(found, 4, "programs in docs/c.md");
}

/// The header of C++ beside those of the APIs, which have handles of C++, too.
#[test]
fn the_header_of_cpp_compiles_beside_vulkan_hpp() {
    let orders = [
        "#include \"syncline.hpp\"\n#include <vulkan/vulkan.hpp>\n#include \"cuda_part.h\"\n",
        "#include \"cuda_part.h\"\n#include <vulkan/vulkan.hpp>\n#include \"syncline.hpp\"\n",
    ];
    let body = "
VkSemaphore use_them(const syncline::Device &device, const syncline::Timeline &line, vk::Queue queue,
                     CUstream stream) {
  sl_vulkan_queue adopted{queue, 0, 0};
  (void)device.adopt_stream(stream, adopted);
  (void)device.adopt_word(0, 32, 0, adopted);
  (void)syncline::Device::adopt_cuda(nullptr, adopted);
  (void)syncline::Device::adopt_vulkan({}, adopted);
  syncline::Allocation block = device.adopt_memory({}, adopted);
  (void)syncline::Link().share_buffer(block.buffer(nullptr, 0, 64));
  (void)syncline::Link().share_image(block.image(nullptr, 0, {}));
  syncline::Point point = line.at(1);
  VkBufferMemoryBarrier barrier{};
  if (!block.buffer(nullptr, 0, 64).acquire_barrier(0, &barrier)) {
    line.claim(2).submit_cuda(line, device, stream);
  }
  (void)point.notify(-1);
  (void)device.adopt_event(nullptr).time_since(syncline::Fence());
  (void)syncline::Endpoint::open(-1, nullptr, syncline::forever).peer();
  (void)syncline::vulkan_offer(nullptr, nullptr, nullptr);
  (void)device.vulkan().device;
  (void)device.cuda();
  VkSemaphore waited = point.vk_semaphore(device);
  vk::Semaphore semaphore = waited ? waited : line.vk_semaphore(device);
  return semaphore;
}
";
    for (index, order) in orders.iter().enumerate() {
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("order-{index}.cpp"));
        std::fs::write(&source, format!("{order}{body}")).unwrap();
        // The warnings are those of this header: the other ones are the system's.
        compile("g++", &["-std=c++17"], &source);
    }
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("order-0.cpp");
    compile("clang++", &["-std=c++20"], &source);
}

/// Many engines are built without exceptions.
#[test]
fn the_header_of_cpp_compiles_without_exceptions() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-exceptions.cpp");
    let body = "
void use(const syncline::Queue &queue, const syncline::Timeline &line) {
  (void)queue.submit_host(line.at(1), [] {}, line.at(2));
}
";
    std::fs::write(&source, format!("#include \"syncline.hpp\"\n{body}")).unwrap();
    for compiler in ["g++", "clang++"] {
        let without = ["-std=c++17", "-fno-exceptions", "-fno-rtti"];
        compile(compiler, &without, &source);
    }
}

/// Checks a program with all warnings.
fn compile(compiler: &str, more: &[&str], source: &Path) {
    let output = Command::new(compiler)
        .args(more)
        .args(["-pedantic", "-Wall", "-Wextra", "-Werror"])
        .args(["-fsyntax-only", "-Iinclude", "-Itests/cases", "-Iexamples"])
        .arg(source)
        .current_dir(ROOT)
        .output()
        .expect("a compiler is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler}: {errors}");
}

#[test]
fn the_header_compiles_without_a_warning() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (index, order) in ORDERS.iter().enumerate() {
        for (compiler, language, standard) in [
            ("gcc", "c", "c11"),
            ("clang", "c", "c11"),
            ("g++", "c++", "c++17"),
            ("clang++", "c++", "c++17"),
        ] {
            let source = folder.join(format!("order-{index}.{language}"));
            let body = if index == 0 { "" } else { USE };
            std::fs::write(&source, format!("{order}{}", body)).unwrap();
            let standard = format!("-std={standard}");
            compile(compiler, &["-x", language, &standard], &source);
        }
    }
}
