//! What a run remembers of the library and the machine that make it.

/// Version of this library.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The CPU's kind and the vector features that kernels may use.
pub fn cpu() -> String {
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    let mut found: Vec<&str> = vec![std::env::consts::ARCH];
    #[cfg(target_arch = "x86_64")]
    {
        let features = [
            ("avx2", std::is_x86_feature_detected!("avx2")),
            ("fma", std::is_x86_feature_detected!("fma")),
            ("avx512f", std::is_x86_feature_detected!("avx512f")),
            ("avx512bf16", std::is_x86_feature_detected!("avx512bf16")),
        ];
        found.extend(features.iter().filter(|f| f.1).map(|f| f.0));
    }
    found.join(" ")
}
