//! What CPUID and the kernel say of the caches, the TLBs and the clock.
//!
//! In user-mode Linux CPUID answers for the host, whose processor executes the instructions; it is
//! the only source of claims there.

use vtax_sys::calls::processor::cpuid;
use vtax_sys::tree::{Tree, field};

use crate::probe::quantity::Claim;

const FOLDER: &str = "/sys/devices/system/cpu/cpu0";
const KIB: u32 = 1024;
/// AMD's leaves for caches and TLBs (AMD64 Architecture Programmer's Manual 3, appendix E).
const AMD_L1: u32 = 0x8000_0005;
const AMD_L2_L3: u32 = 0x8000_0006;

/// Asks for claims; tests use their own tree and CPUID.
pub struct Claims<'a> {
    tree: &'a Tree,
    cpuid: &'a dyn Fn(u32) -> Option<[u32; 4]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property {
    /// Size in bytes.
    Size,
    /// Lines in a set.
    Ways,
}

impl<'a> Claims<'a> {
    /// Claims about this machine.
    pub fn host(tree: &'a Tree) -> Self {
        Self::of(tree, &cpuid)
    }

    /// Claims from any tree and CPUID.
    pub fn of(tree: &'a Tree, cpuid: &'a dyn Fn(u32) -> Option<[u32; 4]>) -> Self {
        Self { tree, cpuid }
    }

    /// Claims about the data cache of a level.
    pub fn cache(&self, level: u32, property: Property) -> Vec<Claim> {
        let sysfs = self.sysfs_cache(level, property).map(by("sysfs"));
        let cpuid = self.amd_cache(level, property).map(by("cpuid"));
        sysfs.into_iter().chain(cpuid).collect()
    }

    /// Bytes of the largest cache, by the first claim of each level, because CPUID's may be for a
    /// whole package, of which one core uses a part. 0: there is no claim.
    pub fn largest_cache(&self) -> f64 {
        let each = (1..=3).filter_map(|level| self.cache(level, Property::Size).into_iter().next());
        each.map(|claim| claim.value).fold(0.0, f64::max)
    }

    fn sysfs_cache(&self, level: u32, property: Property) -> Option<f64> {
        let folder = format!("{FOLDER}/cache");
        let names = self.tree.names(&folder);
        let data = names.iter().find(|name| {
            let kind = self.tree.text(&format!("{folder}/{name}/type"));
            self.tree.number(&format!("{folder}/{name}/level")) == Some(level)
                && kind.is_some_and(|kind| kind != "Instruction")
        })?;
        let file = match property {
            Property::Size => "size",
            Property::Ways => "ways_of_associativity",
        };
        let text = self.tree.text(&format!("{folder}/{data}/{file}"))?;
        match text.strip_suffix('K') {
            Some(kib) => Some(f64::from(kib.parse::<u32>().ok()?) * f64::from(KIB)),
            None => text.parse::<u32>().ok().map(f64::from),
        }
        .filter(|value| *value > 0.0)
    }

    fn amd_cache(&self, level: u32, property: Property) -> Option<f64> {
        let l1 = || self.amd(AMD_L1).map(|[_, _, ecx, _]| ecx);
        let value = match (level, property) {
            (1, Property::Size) => (l1()? >> 24) * KIB,
            (1, Property::Ways) => (l1()? >> 16) & 0xff,
            (2, Property::Size) => (self.amd(AMD_L2_L3)?[2] >> 16) * KIB,
            (3, Property::Size) => (self.amd(AMD_L2_L3)?[3] >> 18).checked_mul(512 * KIB)?,
            _ => return None,
        };
        (value > 0).then(|| f64::from(value))
    }

    /// Bytes that the TLB of a level reaches, with pages of this size.
    pub fn tlb(&self, level: usize, page_bytes: u32) -> Vec<Claim> {
        let entries = self.amd_tlb(level, page_bytes > 4096);
        let reach = entries.map(|entries| f64::from(entries) * f64::from(page_bytes));
        reach.map(by("cpuid")).into_iter().collect()
    }

    fn amd_tlb(&self, level: usize, huge: bool) -> Option<u32> {
        let register = usize::from(!huge);
        let entries = match level {
            1 => (self.amd(AMD_L1)?[register] >> 16) & 0xff,
            2 => (self.amd(AMD_L2_L3)?[register] >> 16) & 0xfff,
            _ => return None,
        };
        (entries > 0).then_some(entries)
    }

    /// An extended leaf of a processor by AMD or Hygon.
    fn amd(&self, leaf: u32) -> Option<[u32; 4]> {
        let [_, b, c, d] = (self.cpuid)(0)?;
        let vendor: Vec<u8> = [b, d, c]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let known = [b"AuthenticAMD", b"HygonGenuine"];
        let ours = known.iter().any(|name| vendor == *name);
        let [highest, ..] = (self.cpuid)(0x8000_0000)?;
        (ours && highest >= leaf).then(|| (self.cpuid)(leaf))?
    }

    /// The clock of the core in GHz, as `/proc/cpuinfo` has it.
    pub fn frequency(&self) -> Vec<Claim> {
        let cpuinfo = self.tree.text("/proc/cpuinfo").unwrap_or_default();
        let mhz = field(&cpuinfo, "cpu MHz").and_then(|text| text.parse::<f64>().ok());
        let ghz = mhz.filter(|mhz| *mhz > 0.0).map(|mhz| mhz / 1e3);
        ghz.map(by("cpuinfo")).into_iter().collect()
    }

    /// The number of vector registers that instructions can name.
    pub fn registers() -> Vec<Claim> {
        let count = if cfg!(target_arch = "x86_64") {
            16.0
        } else {
            32.0
        };
        vec![by("architecture")(count)]
    }
}

fn by(source: &'static str) -> impl Fn(f64) -> Claim {
    move |value| Claim { by: source, value }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The CPUID leaves of a Zen 4.
    #[allow(clippy::unnecessary_wraps, reason = "as CPUID's")]
    fn zen(leaf: u32) -> Option<[u32; 4]> {
        let word = |text: &[u8; 4]| u32::from_le_bytes(*text);
        Some(match leaf {
            0 => [16, word(b"Auth"), word(b"cAMD"), word(b"enti")],
            0x8000_0000 => [0x8000_0028, 0, 0, 0],
            AMD_L1 => [0xff48_ff40, 0xff48_ff40, 0x2008_0140, 0x2008_0140],
            AMD_L2_L3 => [0x6c00_6400, 0x6c00_4400, 0x0400_8140, 64 << 18 | 0x9140],
            _ => [0; 4],
        })
    }

    #[test]
    fn amds_leaves() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::at(folder.path());
        let claims = Claims {
            tree: &tree,
            cpuid: &zen,
        };
        let value = |claims: Vec<Claim>| claims.first().map(|claim| claim.value);
        assert_eq!(value(claims.cache(1, Property::Size)), Some(32768.0));
        assert_eq!(value(claims.cache(1, Property::Ways)), Some(8.0));
        assert_eq!(value(claims.cache(2, Property::Size)), Some(1_048_576.0));
        assert_eq!(value(claims.cache(3, Property::Size)), Some(33_554_432.0));
        assert_eq!(value(claims.tlb(1, 4096)), Some(72.0 * 4096.0));
        assert_eq!(value(claims.tlb(2, 4096)), Some(3072.0 * 4096.0));
        assert_eq!(value(claims.tlb(1, 2 << 20)), Some(72.0 * 2_097_152.0));
        assert!(claims.tlb(3, 4096).is_empty() && claims.frequency().is_empty());
    }

    #[test]
    fn the_kernels_files_come_first_and_other_vendors_leaves_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let index = folder
            .path()
            .join("sys/devices/system/cpu/cpu0/cache/index1");
        fs::create_dir_all(&index).unwrap();
        for (file, text) in [
            ("level", "1"),
            ("type", "Data"),
            ("size", "48K"),
            ("ways_of_associativity", "12"),
        ] {
            fs::write(index.join(file), format!("{text}\n")).unwrap();
        }
        let tree = Tree::at(folder.path());
        let both = Claims {
            tree: &tree,
            cpuid: &zen,
        };
        let found: Vec<_> = both
            .cache(1, Property::Size)
            .iter()
            .map(|claim| (claim.by, claim.value))
            .collect();
        assert_eq!(found, [("sysfs", 49152.0), ("cpuid", 32768.0)]);
        let other = |leaf| zen(leaf).map(|registers| if leaf == 0 { [1; 4] } else { registers });
        let sysfs = Claims {
            tree: &tree,
            cpuid: &other,
        };
        assert_eq!(sysfs.cache(1, Property::Ways).len(), 1);
        assert!(sysfs.cache(2, Property::Size).is_empty() && sysfs.tlb(1, 4096).is_empty());
    }
}
