//! The processor that code is generated for.

use serde::{Deserialize, Serialize};
use vtax_sys::tree::Tree;

use crate::vector::Vector;

/// What is known about the processor: its identity, and what kernels depend on.
///
/// On x86 the source is CPUID, which in user-mode Linux describes the host's processor: that
/// processor executes the instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    /// The vendor, such as `AuthenticAMD`; empty where unknown.
    pub vendor: String,
    /// Its name; empty where unknown.
    pub model_name: String,
    /// CPUID family; on arm64 the architecture's version.
    pub family: u32,
    /// CPUID model; on arm64 the part.
    pub model: u32,
    /// CPUID stepping; on arm64 the revision.
    pub stepping: u32,
    /// The features that kernels use, as far as they exist and the kernel has switched them on.
    pub features: Vec<String>,
    /// Bytes of the L1 data cache.
    pub l1_bytes: Option<u64>,
    /// Lines in one set of the L1 data cache.
    pub l1_ways: Option<u32>,
    pub l2_bytes: Option<u64>,
    /// Lines in one set of the L2 cache.
    pub l2_ways: Option<u32>,
    /// Bytes of the L3 cache, which several cores may share.
    pub l3_bytes: Option<u64>,
    /// The number of vector registers that instructions can name.
    pub registers: u32,
}

impl Processor {
    pub fn this() -> Self {
        let tree = Tree::host();
        let cpuinfo = tree.text("/proc/cpuinfo").unwrap_or_default();
        let [l1, l2, l3] = [1, 2, 3].map(|level| cache(&tree, level));
        let identity = arch::identity(&cpuinfo);
        let features = arch::features();
        let registers = arch::registers(&features);
        Self {
            vendor: identity.vendor,
            model_name: identity.model_name,
            family: identity.family,
            model: identity.model,
            stepping: identity.stepping,
            features: features.into_iter().map(str::to_owned).collect(),
            l1_bytes: l1.map(|cache| cache.bytes),
            l1_ways: l1.and_then(|cache| cache.ways),
            l2_bytes: l2.map(|cache| cache.bytes),
            l2_ways: l2.and_then(|cache| cache.ways),
            l3_bytes: l3.map(|cache| cache.bytes),
            registers,
        }
    }

    /// The usable instruction sets, the widest last. Portable code is always usable.
    pub fn vectors(&self) -> Vec<Vector> {
        let mut vectors = vec![Vector::Portable];
        let needs = [
            (Vector::Scalar, &["sse2"][..]),
            (Vector::Sse2, &["sse2"]),
            (Vector::Avx2, &["avx2"]),
            (Vector::Avx512, &["avx512f", "avx512dq"]),
        ];
        let there = needs
            .into_iter()
            .filter(|(_, needed)| needed.iter().all(|feature| self.has(feature)));
        vectors.extend(there.map(|(vector, _)| vector));
        vectors
    }

    /// Can kernels of this instruction set fuse multiplication and addition?
    pub fn fuses(&self, vector: Vector) -> bool {
        match vector {
            // On x86 the compiler may not use FMA, and calls a slow function instead.
            Vector::Portable => cfg!(target_arch = "aarch64"),
            Vector::Scalar | Vector::Sse2 => false,
            Vector::Avx2 => self.has("fma"),
            Vector::Avx512 => true,
        }
    }

    fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|found| found == feature)
    }
}

#[derive(Debug, Default)]
struct Identity {
    vendor: String,
    model_name: String,
    family: u32,
    model: u32,
    stepping: u32,
}

/// A data cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cache {
    bytes: u64,
    ways: Option<u32>,
}

/// The data cache of a level, from the kernel or else from CPUID.
fn cache(tree: &Tree, level: u32) -> Option<Cache> {
    kernels_cache(tree, level).or_else(|| arch::cache(level))
}

fn kernels_cache(tree: &Tree, level: u32) -> Option<Cache> {
    const FOLDER: &str = "/sys/devices/system/cpu/cpu0/cache";
    let of_level = |name: &String| {
        let kind = tree.text(&format!("{FOLDER}/{name}/type"));
        tree.number(&format!("{FOLDER}/{name}/level")) == Some(level)
            && kind.is_some_and(|kind| kind != "Instruction")
    };
    let name = tree.names(FOLDER).into_iter().find(of_level)?;
    let size = tree.text(&format!("{FOLDER}/{name}/size"))?;
    let kib: u64 = size.strip_suffix('K')?.parse().ok()?;
    let ways = tree.number(&format!("{FOLDER}/{name}/ways_of_associativity"));
    let bytes = kib.checked_mul(1024).filter(|bytes| *bytes > 0)?;
    Some(Cache {
        bytes,
        ways: ways.filter(|ways| *ways > 0),
    })
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use vtax_sys::calls::processor::{cpuid, cpuid_leaf};

    use super::{Cache, Identity};

    /// The identity from CPUID's leaves 0 and 1 (Intel SDM 2A, CPUID, figure 3-6) and the brand
    /// string.
    pub fn identity(_cpuinfo: &str) -> Identity {
        let [_, b, c, d] = cpuid(0).unwrap_or_default();
        let [version, ..] = cpuid(1).unwrap_or_default();
        let (family, extended) = ((version >> 8) & 0xf, (version >> 20) & 0xff);
        let model = ((version >> 4) & 0xf) | ((version >> 12) & 0xf0);
        Identity {
            vendor: text(&[b, d, c]),
            model_name: brand(),
            family: family + if family == 0xf { extended } else { 0 },
            model,
            stepping: version & 0xf,
        }
    }

    fn brand() -> String {
        const FIRST: u32 = 0x8000_0002;
        let highest = cpuid(0x8000_0000).unwrap_or_default()[0];
        if highest < FIRST + 2 {
            return String::new();
        }
        let words: Vec<u32> = (FIRST..FIRST + 3)
            .flat_map(|leaf| cpuid(leaf).unwrap_or_default())
            .collect();
        text(&words)
    }

    fn text(words: &[u32]) -> String {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let text = String::from_utf8_lossy(&bytes);
        text.trim_matches(['\0', ' ']).to_owned()
    }

    /// The standard library also checks in XCR0 whether the kernel saves the registers.
    pub fn features() -> Vec<&'static str> {
        let all = [
            ("sse2", is_x86_feature_detected!("sse2")),
            ("avx", is_x86_feature_detected!("avx")),
            ("avx2", is_x86_feature_detected!("avx2")),
            ("fma", is_x86_feature_detected!("fma")),
            ("avx512f", is_x86_feature_detected!("avx512f")),
            ("avx512dq", is_x86_feature_detected!("avx512dq")),
        ];
        let there = all.into_iter().filter(|(_, there)| *there);
        there.map(|(name, _)| name).collect()
    }

    pub fn registers(features: &[&str]) -> u32 {
        if features.contains(&"avx512f") {
            32
        } else {
            16
        }
    }

    /// CPUID's deterministic cache parameters: leaf 4 (Intel SDM 2A) or 8000001D (AMD's manual 3,
    /// appendix E), which have the same form.
    pub fn cache(level: u32) -> Option<Cache> {
        const DATA: u32 = 1;
        const UNIFIED: u32 = 3;
        let leaf = leaf()?;
        let entries = (0..8).map_while(|index| {
            let registers = cpuid_leaf(leaf, index)?;
            (registers[0] & 0x1f != 0).then_some(registers)
        });
        let mut caches = entries
            .filter(|[eax, ..]| (eax >> 5) & 7 == level && [DATA, UNIFIED].contains(&(eax & 0x1f)));
        let [_, ebx, ecx, _] = caches.next()?;
        let (ways, partitions, line) = (
            (ebx >> 22) + 1,
            ((ebx >> 12) & 0x3ff) + 1,
            (ebx & 0xfff) + 1,
        );
        let set_bytes = u64::from(ways) * u64::from(partitions) * u64::from(line);
        Some(Cache {
            bytes: set_bytes * (u64::from(ecx) + 1),
            ways: Some(ways),
        })
    }

    fn leaf() -> Option<u32> {
        const AMD: u32 = 0x8000_001d;
        const INTEL: u32 = 4;
        let topology = cpuid(0x8000_0001)?[2] & 1 << 22 != 0;
        if cpuid(0x8000_0000)?[0] >= AMD && topology {
            return Some(AMD);
        }
        (cpuid(0)?[0] >= INTEL).then_some(INTEL)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod arch {
    use vtax_sys::tree::field;

    use super::{Cache, Identity};

    pub fn identity(cpuinfo: &str) -> Identity {
        let text = |name| field(cpuinfo, name).unwrap_or_default();
        let number = |name| {
            let text = text(name);
            let hex = text
                .strip_prefix("0x")
                .and_then(|digits| u32::from_str_radix(digits, 16).ok());
            hex.or_else(|| text.parse().ok()).unwrap_or(0)
        };
        Identity {
            vendor: text("CPU implementer").to_owned(),
            model_name: text("model name").to_owned(),
            family: number("CPU architecture"),
            model: number("CPU part"),
            stepping: number("CPU revision"),
        }
    }

    pub fn features() -> Vec<&'static str> {
        Vec::new()
    }

    pub fn registers(_features: &[&str]) -> u32 {
        32
    }

    pub fn cache(_level: u32) -> Option<Cache> {
        None
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_arch = "x86_64")]
    use vtax_sys::tree::field;

    use super::*;

    #[test]
    fn portable_code_is_always_possible_and_widths_ascend() {
        let mut processor = Processor::this();
        let vectors = processor.vectors();
        assert_eq!(vectors.first(), Some(&Vector::Portable));
        assert!(vectors.is_sorted());
        processor.features.clear();
        assert_eq!(processor.vectors(), [Vector::Portable]);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn cpuid_and_the_kernel_name_the_same_processor() {
        let cpuinfo = Tree::host().text("/proc/cpuinfo").unwrap();
        let processor = Processor::this();
        // User-mode Linux has no such line.
        if let Some(family) = field(&cpuinfo, "cpu family") {
            assert_eq!(family, processor.family.to_string());
            assert_eq!(
                field(&cpuinfo, "model"),
                Some(&*processor.model.to_string())
            );
            assert_eq!(field(&cpuinfo, "vendor_id"), Some(&*processor.vendor));
        }
        assert!(processor.vectors().contains(&Vector::Sse2));
    }

    /// The kernel takes its caches from CPUID; where the kernel says nothing, CPUID is asked
    /// instead.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn cpuid_and_the_kernel_agree_on_caches() {
        for level in 1..=3 {
            let (kernel, cpuid) = (kernels_cache(&Tree::host(), level), arch::cache(level));
            if let (Some(kernel), Some(cpuid)) = (kernel, cpuid) {
                assert_eq!(kernel.bytes, cpuid.bytes, "level {level}");
            }
        }
        assert_eq!(kernels_cache(&Tree::at("/nonexistent"), 1), None);
    }
}
