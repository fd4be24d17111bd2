//! Memory: how much is left, and refusing what does not fit before it is allocated.

use crate::error::{Error, Result};
use crate::text;
use std::path::{Path, PathBuf};

/// Bytes that this process can still allocate: the minimum of what the machine, its control groups and its own limits leave. `None` where
/// the system does not say.
pub fn free() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let in_proc = |name: &str| read(&Path::new("/proc").join(name));
    let (status, limits) = (in_proc("self/status"), in_proc("self/limits"));
    let own = [("Max address space", "VmSize:"), ("Max data size", "VmData:")];
    let own = own.iter().filter_map(|(name, used)| {
        Some(limit(&limits, name)?.saturating_sub(kibibytes(&status, used).unwrap_or_default()))
    });
    let groups = groups(&in_proc("self/cgroup"));
    let of_groups = groups.iter().filter_map(|group| {
        // The system's file cache can be freed.
        let stat = read(&group.folder.join("memory.stat"));
        let files: u64 = ["inactive_file", "active_file"].iter().filter_map(|key| of_key(&stat, key)).sum();
        let (most, used) =
            (number(&read(&group.folder.join(group.most)))?, number(&read(&group.folder.join(group.used)))?);
        Some(most.saturating_sub(used.saturating_sub(files)))
    });
    kibibytes(&in_proc("meminfo"), "MemAvailable:").into_iter().chain(own).chain(of_groups).min()
}

/// For so few bytes nobody is asked what is free, which takes a hundred calls of the system.
pub const SMALL: u64 = 16 << 20;

/// An error where `what` needs more bytes than are free, as far as that is known; `hint` says what to do about it.
pub fn require(bytes: u64, what: &str, hint: &str) -> Result<()> {
    match if bytes > SMALL { free() } else { None } {
        Some(free) if bytes > free => Err(shortage(bytes, free, what, hint)),
        _ => Ok(()),
    }
}

/// The error for `what`, which needs more bytes than are free.
pub fn shortage(bytes: u64, free: u64, what: &str, hint: &str) -> Error {
    let shown = |bytes: u64| text::bytes(bytes as f64);
    Error::data(format!("{what} takes {} of memory, and {} are free", shown(bytes), shown(free)), hint)
}

/// A control group that may limit this process.
#[derive(Debug, PartialEq, Eq)]
struct ControlGroup {
    folder: PathBuf,
    /// The files of its limit and of what is used.
    most: &'static str,
    used: &'static str,
}

/// The groups of a process by its `/proc/self/cgroup`, with all above them: each may have a limit.
fn groups(text: &str) -> Vec<ControlGroup> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(kinds), Some(name)) = (parts.next(), parts.next()) else { continue };
        let (root, most, used) = match kinds {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            kinds if kinds.split(',').any(|kind| kind == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        let own = Path::new(root).join(name.trim_start_matches('/'));
        let above = own.ancestors().take_while(|folder| folder.starts_with(root));
        found.extend(above.map(|folder| ControlGroup { folder: folder.to_path_buf(), most, used }));
    }
    found
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The number of a line `key 123`.
fn of_key(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| number(line.strip_prefix(key)?.strip_prefix(' ')?))
}

/// The bytes of a line `key: 123 kB`.
fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    number(line.trim().trim_end_matches("kB")).map(|n| n << 10)
}

/// The soft limit called `name`, where there is one.
fn limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    number(line.split_whitespace().next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max data size             unlimited            unlimited            bytes\n\
                      Max address space         1073741824           unlimited            bytes\n";
        assert_eq!(limit(limits, "Max address space"), Some(1 << 30));
        assert_eq!(limit(limits, "Max data size"), None);
        assert_eq!(kibibytes("MemFree: 1 kB\nMemAvailable:   20 kB\n", "MemAvailable:"), Some(20 << 10));
        let stat = "anon 5\ninactive_file 30\nactive_file 4\n";
        assert_eq!(
            (of_key(stat, "active_file"), of_key(stat, "inactive"), of_key(stat, "file")),
            (Some(4), None, None)
        );
        assert_eq!((kibibytes("", "MemAvailable:"), number("max\n"), number("7\n")), (None, None, Some(7)));
        if cfg!(target_os = "linux") {
            assert!(free().is_some());
        }
    }

    #[test]
    fn groups_of_both_versions_with_all_above_them() {
        let folders = |text: &str| groups(text).into_iter().map(|g| (g.folder, g.most)).collect::<Vec<_>>();
        let new = |path: &str| (PathBuf::from(path), "memory.max");
        assert_eq!(folders("0::/a/b\n"), [new("/sys/fs/cgroup/a/b"), new("/sys/fs/cgroup/a"), new("/sys/fs/cgroup")]);
        let old = |path: &str| (PathBuf::from(path), "memory.limit_in_bytes");
        let found = folders("4:cpu,cpuacct:/x\n3:memory:/x\n");
        assert_eq!(found, [old("/sys/fs/cgroup/memory/x"), old("/sys/fs/cgroup/memory")]);
        assert!(folders("").is_empty() && folders("nonsense").is_empty());
    }

    #[test]
    fn what_does_not_fit_is_refused_with_both_numbers() {
        require(1, "it", "").unwrap();
        let e = shortage(3_000_000_000, 1_000_000_000, "reading x.npy", "use less");
        assert_eq!(e.message, "reading x.npy takes 3.0 GB of memory, and 1.0 GB are free");
        if cfg!(target_os = "linux") {
            assert!(require(u64::MAX, "it", "").is_err());
        }
    }
}
