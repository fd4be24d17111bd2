//! The memory budget of decoded images, and the available memory.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::config::Cache;

/// Assumed available memory where the system does not report it.
const UNKNOWN: u64 = 4 << 30;

/// Limit on the bytes of decoded images. Either all images are kept in memory or none: once one does not fit, none is kept.
pub(super) struct MemoryBudget {
    /// The limit in bytes; `None` for no limit.
    most: Option<u64>,
    taken: AtomicU64,
    full: AtomicBool,
}

impl MemoryBudget {
    /// The budget of the setting `cache`: no limit, zero, or half of the available memory.
    pub fn new(cache: Cache) -> Self {
        Self::of(match cache {
            Cache::Memory => None,
            Cache::None => Some(0),
            Cache::Auto => Some(free_memory().unwrap_or(UNKNOWN) / 2),
        })
    }

    /// A budget of `most` bytes; `None` for no limit.
    pub fn of(most: Option<u64>) -> Self {
        MemoryBudget { most, taken: AtomicU64::new(0), full: AtomicBool::new(most == Some(0)) }
    }

    /// Whether there is no limit.
    pub fn unlimited(&self) -> bool {
        self.most.is_none()
    }

    /// Whether all images so far fitted.
    pub fn holds_all(&self) -> bool {
        !self.full.load(Ordering::Relaxed)
    }

    /// Reserves `bytes`; false if they do not fit.
    pub fn take(&self, bytes: usize) -> bool {
        let Some(most) = self.most else { return true };
        let fits = self.holds_all() && self.taken.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64 <= most;
        if !fits {
            self.full.store(true, Ordering::Relaxed);
        }
        fits
    }
}

/// Bytes that this process can still allocate: the minimum of what the machine, its control group and its own limit leave.
pub fn free_memory() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let groups = read("/proc/self/cgroup");
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let group = group.map(|name| Path::new("/sys/fs/cgroup").join(name));
    let in_group = |file: &str| group.as_ref().and_then(|g| number(&read(g.join(file).to_str()?)));
    // The system's file cache can be freed.
    let files = |stat: &str| ["inactive_file", "active_file"].iter().filter_map(|key| of_key(stat, key)).sum::<u64>();
    let held = group.as_ref().map_or(0, |group| files(&read(&group.join("memory.stat").to_string_lossy())));
    let group_left = in_group("memory.max")
        .zip(in_group("memory.current"))
        .map(|(max, used)| max.saturating_sub(used.saturating_sub(held)));
    let status = read("/proc/self/status");
    let own_left = limit(&read("/proc/self/limits"))
        .map(|most| most.saturating_sub(kibibytes(&status, "VmSize:").unwrap_or_default()));
    [kibibytes(&read("/proc/meminfo"), "MemAvailable:"), group_left, own_left].into_iter().flatten().min()
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

/// The soft limit of the address space, where there is one.
fn limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    number(line.split_whitespace().next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_taken_until_it_is_full() {
        let budget = MemoryBudget::of(Some(10));
        assert!(budget.take(4) && budget.take(6) && budget.holds_all());
        assert!(!budget.take(1) && !budget.holds_all());
        assert!(!budget.take(0), "once full, always full: images are held all or none");
        let all = MemoryBudget::new(Cache::Memory);
        assert!(all.take(usize::MAX) && all.take(usize::MAX) && all.holds_all() && all.unlimited());
        let none = MemoryBudget::new(Cache::None);
        assert!(!none.holds_all() && !none.take(0) && !none.unlimited());
    }

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max data size             unlimited            unlimited            bytes\n\
                      Max address space         1073741824           unlimited            bytes\n";
        assert_eq!(limit(limits), Some(1 << 30));
        assert_eq!(limit(&limits.replace("1073741824", "unlimited ")), None);
        assert_eq!(kibibytes("MemFree: 1 kB\nMemAvailable:   20 kB\n", "MemAvailable:"), Some(20 << 10));
        let stat = "anon 5\ninactive_file 30\nactive_file 4\n";
        assert_eq!(
            (of_key(stat, "active_file"), of_key(stat, "inactive"), of_key(stat, "file")),
            (Some(4), None, None)
        );
        assert_eq!((kibibytes("", "MemAvailable:"), number("max\n"), number("7\n")), (None, None, Some(7)));
        if cfg!(target_os = "linux") {
            assert!(free_memory().is_some());
        }
    }
}
