//! Folders of images, as of a cluster, with copies of them or links to them. The images themselves stay as they are.

use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{link, make_folder};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// How images get into the folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As files of their own.
    Copy,
    /// As symbolic links to absolute paths.
    Link,
}

/// `NAME-07` for every row: the folder of its cluster or group.
pub fn numbered(name: &str, assignment: &[u32]) -> Vec<String> {
    let digits = assignment.iter().max().map_or(1, |c| c.to_string().len());
    assignment.iter().map(|number| format!("{name}-{number:0digits$}")).collect()
}

/// The folder of every row, and the image's name in it: its own name, with a number where another image of the
/// folder has it already, or one that differs in case only, which some file systems do not tell apart.
pub fn names(folders: &[String], paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut taken: HashSet<(&str, String)> = HashSet::new();
    // The number to try next for a name, so that ten thousand of one name are not counted through for each.
    let mut next: HashMap<(&str, String), usize> = HashMap::new();
    let mut made = Vec::with_capacity(paths.len());
    for (folder, path) in folders.iter().zip(paths) {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let ending = path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
        let numbered = |n: usize| if n == 1 { format!("{stem}{ending}") } else { format!("{stem}-{n}{ending}") };
        let from = next.entry((folder, numbered(1).to_lowercase())).or_insert(1);
        while !taken.insert((folder, numbered(*from).to_lowercase())) {
            *from += 1;
        }
        made.push(Path::new(folder).join(numbered(*from)));
    }
    made
}

/// Fills the new folder `out`; returns every image's path in it. `tick` is told how many images are done.
pub fn make(
    out: &Path,
    folders: &[String],
    paths: &[PathBuf],
    how: How,
    stop: &Cancel,
    tick: &dyn Fn(usize),
) -> Result<Vec<PathBuf>> {
    let names = names(folders, paths);
    make_folder(out)?;
    let mut made: HashSet<&Path> = HashSet::new();
    for (i, (name, path)) in names.iter().zip(paths).enumerate() {
        stop.check()?;
        let target = out.join(name);
        if let Some(folder) = name.parent().filter(|folder| made.insert(folder)) {
            make_folder(&out.join(folder))?;
        }
        match how {
            How::Link => link(&path.canonicalize().map_err(|e| Error::io("find", path, &e))?, &target)?,
            How::Copy => {
                // A new file or none: what is there is not written over, whatever it is.
                let mut from = fs::File::open(path).map_err(|e| Error::io("read", path, &e))?;
                let mut to = fs::File::create_new(&target).map_err(|e| Error::io("write", &target, &e))?;
                std::io::copy(&mut from, &mut to).map_err(|e| Error::io("write", &target, &e))?;
            }
        }
        tick(i + 1);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_the_same_or_nearly_get_numbers() {
        let paths = ["x/a.png", "y/a.png", "y/A.PNG", "x/a-2.png", "z/a.png", "ä b", "x/ÄB.jpg", "y/äb.jpg"];
        let names = names(&numbered("cluster", &[0, 0, 0, 0, 12, 0, 0, 0]), &paths.map(PathBuf::from));
        let expected =
            ["00/a.png", "00/a-2.png", "00/A-3.PNG", "00/a-2-2.png", "12/a.png", "00/ä b", "00/ÄB.jpg", "00/äb-2.jpg"];
        assert_eq!(names, expected.map(|n| PathBuf::from(format!("cluster-{n}"))));
        assert!(super::names(&[], &[]).is_empty());
    }

    #[test]
    fn copies_and_links_leave_the_images_alone() {
        let dir = tempfile::tempdir().unwrap();
        let images: Vec<PathBuf> = ["a b.png", "Ж.png"].map(|n| dir.path().join(n)).to_vec();
        images.iter().for_each(|path| fs::write(path, path.display().to_string()).unwrap());
        for how in [How::Copy, How::Link] {
            let out = dir.path().join(format!("{how:?}"));
            let names = make(&out, &numbered("c", &[1, 0]), &images, how, &Cancel::default(), &|_| ()).unwrap();
            for (name, image) in names.iter().zip(&images) {
                let path = out.join(name);
                assert_eq!(path.is_symlink(), how == How::Link);
                assert_eq!(fs::read_to_string(&path).unwrap(), image.display().to_string());
            }
            let e = make(&out, &numbered("c", &[1, 0]), &images, how, &Cancel::default(), &|_| ()).unwrap_err();
            assert!(e.message.contains("a b.png"), "{e:?}: never written over");
        }
        assert!(images.iter().all(|path| fs::read_to_string(path).unwrap() == path.display().to_string()));
        let e = make(
            &dir.path().join("n"),
            &["a".into()],
            &[dir.path().join("none")],
            How::Copy,
            &Cancel::default(),
            &|_| (),
        );
        assert!(e.unwrap_err().message.contains("none"));
    }
}
