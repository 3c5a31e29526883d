//! The mutations that `make torture-selftest` must find, as far as they can rot: each must still fit the sources.

use std::path::Path;
use std::process::Command;

/// A mutation that no longer applies proves nothing, and would be noticed only by the next long self-test.
#[test]
fn each_mutation_fits_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let patches: Vec<_> = std::fs::read_dir(root.join("tests/mutations"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(patches.len() >= 10, "{patches:?}");
    for patch in patches {
        let applied = Command::new("git")
            .args(["apply", "--check"])
            .arg(&patch)
            .current_dir(root)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&applied.stderr);
        assert!(applied.status.success(), "{}: {said}", patch.display());
    }
}
