//! Files that must keep their bits from one version of the program to the next: `tests/golden/commands.txt` lists the commands, and a file per
//! level of CPU features the checksums, as `tests/golden/make` prints them.

use crate::common::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// The checksums for this CPU, if known.
fn expected() -> Option<&'static str> {
    match kernels::level() {
        kernels::Level::Avx512 => Some(include_str!("../golden/avx512.txt")),
        kernels::Level::Avx2 => Some(include_str!("../golden/avx2.txt")),
        kernels::Level::Portable => None,
    }
}

#[test]
fn files_keep_their_bits() {
    let Some(expected) = expected() else {
        eprintln!("skipped: there are no checksums for this CPU's level, {:?}", kernels::level());
        return;
    };
    let expected: BTreeMap<&str, &str> =
        expected.lines().map(|l| l.split_once("  ").unwrap()).map(|(h, f)| (f, h)).collect();
    let dir = tempfile::tempdir().unwrap();
    let mut missing = expected.clone();
    for line in include_str!("../golden/commands.txt").lines().filter(|l| !l.starts_with('#')) {
        let (name, rest) = line.split_once(": ").unwrap();
        if name == "bf16" && !kernels::bf16_supported() {
            eprintln!("skipped: this CPU does not compute in bf16");
            missing.retain(|file, _| !file.starts_with("bf16/"));
            continue;
        }
        let (arguments, files) = rest.split_once(" -> ").unwrap();
        let arguments = arguments.replace(['{', '}'], "");
        let arguments: Vec<&str> = arguments.split(' ').chain(["--out", name]).collect();
        let output = pcp(&arguments).current_dir(&dir).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let folder = dir.path().join(name);
        let files = match files {
            "*" => all_files(&folder),
            few => few.split(' ').map(String::from).collect(),
        };
        for file in files {
            let path = folder.join(file.trim_end_matches("#data"));
            let bytes = std::fs::read(&path).unwrap();
            let from = if file.ends_with("#data") { 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) } else { 0 };
            let found: String = Sha256::digest(&bytes[from as usize..]).iter().map(|b| format!("{b:02x}")).collect();
            let key = format!("{name}/{file}");
            assert_eq!(Some(&found.as_str()), expected.get(key.as_str()), "{key}");
            missing.remove(key.as_str());
        }
    }
    assert!(missing.is_empty(), "every file that is listed is made: {missing:?}");
}

/// Names of all files below `folder`.
fn all_files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    collect(folder, folder, &mut found);
    found
}
