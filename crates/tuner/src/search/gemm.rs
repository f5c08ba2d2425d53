//! What can be tried for GEMM, in ATLAS's order.

use crate::parameters::Parameters;
use crate::processor::Processor;
use crate::search::Space;
use crate::vector::{Precision, Vector};

const KIB: u64 = 1024;
/// The size of L1 where the processor does not say it.
const L1_BYTES: u64 = 32 * KIB;
const L2_BYTES: u64 = 512 * KIB;
const SMALLEST_EDGE: u64 = 64 * KIB;
const LATENCIES: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 8];
const UNROLLINGS: [u32; 5] = [1, 2, 4, 8, 16];
const FETCHES: [u32; 6] = [0, 1, 2, 3, 4, 8];
const DISTANCES: [u32; 7] = [0, 1, 2, 4, 8, 16, 32];
/// No register file holds a block with a longer side.
const LONGEST_SIDE: u32 = 64;

/// The line searches, in their order.
const LINES: [Line; 9] = [
    Line::Multiply,
    Line::Block,
    Line::Unrolling,
    Line::Depth,
    Line::FetchC,
    Line::FetchFirst,
    Line::Distance,
    Line::CacheEdge,
    Line::Columns,
];

#[derive(Debug, Clone, Copy)]
enum Line {
    /// MULADD and LAT.
    Multiply,
    /// MU and NU.
    Block,
    /// KU.
    Unrolling,
    /// NB.
    Depth,
    /// FFTCH.
    FetchC,
    /// IFTCH.
    FetchFirst,
    /// NFTCH.
    Distance,
    /// MC, by cache bytes that are powers of two, and the values halfway between them.
    CacheEdge,
    /// NC.
    Columns,
}

/// GEMM on one processor.
#[derive(Debug, Clone)]
pub struct GemmSpace<'a> {
    pub processor: &'a Processor,
    pub precision: Precision,
    /// The instruction sets to try, the narrowest first.
    pub vectors: Vec<Vector>,
    /// The size of the timed product: larger parameters than this make no difference.
    pub size: u32,
}

impl Space<Parameters> for GemmSpace<'_> {
    fn starts(&self) -> Vec<Parameters> {
        let widest_first = self.vectors.iter().rev();
        let models =
            widest_first.map(|it| Parameters::model_for(*it, self.processor, self.precision));
        self.allowed(models)
    }

    fn lines(&self) -> usize {
        LINES.len()
    }

    fn line(&self, line: usize, winner: &Parameters) -> Vec<Parameters> {
        let all = match LINES[line] {
            Line::Multiply => multiplies(winner),
            Line::Block => self.blocks(winner),
            Line::Unrolling => with(&UNROLLINGS, |ku| Parameters { ku, ..*winner }),
            Line::Depth => self.depths(winner),
            Line::FetchC => vec![fetching_c(winner)],
            Line::FetchFirst => with(&FETCHES, |ifetch| Parameters { ifetch, ..*winner }),
            Line::Distance => with(&DISTANCES, |nfetch| Parameters { nfetch, ..*winner }),
            Line::CacheEdge => self.edges(winner),
            Line::Columns => self.columns(winner),
        };
        self.allowed(all)
    }

    fn neighbours(&self, winner: &Parameters) -> Vec<Parameters> {
        let lanes = winner.vector.lanes(self.precision);
        let mut all = vec![fetching_c(winner)];
        for (mu, nu) in [(lanes, 0), (0, 1), (lanes, 1)] {
            let (more, less) = (winner.mu + mu, winner.mu.saturating_sub(mu));
            let (wider, narrower) = (winner.nu + nu, winner.nu.saturating_sub(nu));
            all.extend([(more, wider), (less, narrower)].map(|side| block(winner, side)));
            all.extend([(more, narrower), (less, wider)].map(|side| block(winner, side)));
        }
        all.extend(around(winner.lat, 1).map(|lat| Parameters { lat, ..*winner }));
        all.extend(halved_doubled(winner.ku).map(|ku| Parameters { ku, ..*winner }));
        all.extend(around(winner.nb, 16).map(|nb| self.deep(winner, nb)));
        all.extend(around(winner.ifetch, 1).map(|ifetch| Parameters { ifetch, ..*winner }));
        all.extend(halved_doubled(winner.nfetch).map(|nfetch| Parameters { nfetch, ..*winner }));
        all.extend(around(winner.mc, winner.mc / 5).map(|mc| Parameters { mc, ..*winner }));
        all.extend(around(winner.nc, winner.nc / 5).map(|nc| Parameters { nc, ..*winner }));
        self.allowed(all)
    }

    fn grid(&self) -> Vec<Parameters> {
        let mut all = Vec::new();
        for start in self.starts() {
            for form in self.allowed([true, false].map(|muladd| Parameters { muladd, ..start })) {
                for tile in self.allowed(self.blocks(&form)) {
                    all.extend(self.beneath(&tile));
                }
            }
        }
        all
    }
}

impl GemmSpace<'_> {
    /// The grid's points with one kernel's block: KU 1, 4 and 16, NB, NFTCH 0 and 8, `CacheEdge`.
    fn beneath(&self, tile: &Parameters) -> Vec<Parameters> {
        let unrolled = with(&[1, 4, 16], |ku| Parameters { ku, ..*tile });
        let deep = unrolled.iter().flat_map(|point| self.depths(point));
        let fetched = deep.flat_map(|point| with(&[0, 8], |nfetch| Parameters { nfetch, ..point }));
        let edges = fetched.flat_map(|point| self.edges(&point));
        self.allowed(edges.collect::<Vec<_>>())
    }

    /// Every block that fits in the registers, those with the fewest loads per operation first.
    fn blocks(&self, winner: &Parameters) -> Vec<Parameters> {
        let lanes = winner.vector.lanes(self.precision);
        let sides = (1..=LONGEST_SIDE / lanes).map(|vectors| vectors * lanes);
        let blocks = sides.flat_map(|mu| (1..=LONGEST_SIDE / 2).map(move |nu| (mu, nu)));
        let mut blocks: Vec<_> = blocks.collect();
        let loads = |(mu, nu): &(u32, u32)| 1.0 / f64::from(*mu) + 1.0 / f64::from(*nu);
        blocks.sort_by(|a, b| loads(a).total_cmp(&loads(b)));
        blocks
            .into_iter()
            .map(|sides| block(winner, sides))
            .collect()
    }

    /// NB: multiples of 32 until the narrower panel of A and B fills L1, the nearest first.
    fn depths(&self, winner: &Parameters) -> Vec<Parameters> {
        let bytes = u64::from(self.precision.bytes()) * u64::from(winner.mu.min(winner.nu).max(1));
        let most = self.processor.l1_bytes.unwrap_or(L1_BYTES) / bytes;
        let most = u32::try_from(most)
            .unwrap_or(u32::MAX)
            .clamp(32, self.size.max(32));
        let step = (most / 16).next_multiple_of(32);
        let mut all: Vec<u32> = (1..=most / step).map(|times| times * step).collect();
        all.sort_by_key(|nb| nb.abs_diff(winner.nb));
        all.into_iter().map(|nb| self.deep(winner, nb)).collect()
    }

    /// Parameters with another NB and the same `CacheEdge`: the block of A takes as much of L2 as
    /// before.
    fn deep(&self, winner: &Parameters, nb: u32) -> Parameters {
        let deep = Parameters { nb, ..*winner };
        self.with_edge(&deep, winner.cache_edge_bytes(self.precision))
    }

    fn with_edge(&self, at: &Parameters, bytes: u64) -> Parameters {
        Parameters {
            mc: rows_of_edge(at, self.precision, bytes),
            ..*at
        }
    }

    fn edges(&self, winner: &Parameters) -> Vec<Parameters> {
        let most = 4 * self.processor.l2_bytes.unwrap_or(L2_BYTES);
        let powers = (0..).map(|power| SMALLEST_EDGE << power);
        let powers = powers.take_while(|bytes| *bytes <= most);
        let edges = powers.flat_map(|bytes| [bytes, bytes / 2 * 3]);
        let all = edges.map(|bytes| self.with_edge(winner, bytes));
        // More rows than the product has make no different candidate.
        all.filter(|edge| edge.mc <= self.size.next_multiple_of(edge.mu.max(1)))
            .collect()
    }

    fn columns(&self, winner: &Parameters) -> Vec<Parameters> {
        let all = [4096, 2048, 1024, 512, 256, 128];
        let all = with(&all, |nc| Parameters { nc, ..*winner });
        let differs = |nc: u32| nc < self.size;
        all.into_iter().filter(|other| differs(other.nc)).collect()
    }

    /// The candidates, rounded to whole register blocks, without those that this processor cannot
    /// run.
    fn allowed(&self, all: impl IntoIterator<Item = Parameters>) -> Vec<Parameters> {
        let mut kept: Vec<Parameters> = Vec::new();
        for one in all.into_iter().map(|one| rounded(&one)) {
            if self.allows(&one) && kept.last() != Some(&one) {
                kept.push(one);
            }
        }
        kept
    }

    fn allows(&self, one: &Parameters) -> bool {
        let known = self.vectors.contains(&one.vector);
        known && one.is_valid_for(self.processor, self.precision).is_ok()
    }
}

/// Rows of A in a block of this many bytes of the cache: whole register blocks, at least one.
pub fn rows_of_edge(at: &Parameters, precision: Precision, bytes: u64) -> u32 {
    let row = u64::from(precision.bytes()) * u64::from(at.nb.max(1));
    let rows = u32::try_from(bytes / row).unwrap_or(u32::MAX);
    rows / at.mu.max(1) * at.mu
}

fn rounded(one: &Parameters) -> Parameters {
    let whole = |length: u32, side: u32| (length / side.max(1)).max(1).saturating_mul(side);
    Parameters {
        mc: whole(one.mc, one.mu),
        nc: whole(one.nc, one.nu),
        ..*one
    }
}

fn multiplies(winner: &Parameters) -> Vec<Parameters> {
    let forms = [winner.muladd, !winner.muladd];
    let forms = forms.map(|muladd| {
        with(&LATENCIES, |lat| Parameters {
            muladd,
            lat,
            ..*winner
        })
    });
    forms.concat()
}

fn block(at: &Parameters, (mu, nu): (u32, u32)) -> Parameters {
    Parameters { mu, nu, ..*at }
}

fn fetching_c(at: &Parameters) -> Parameters {
    Parameters {
        ffetch: !at.ffetch,
        ..*at
    }
}

fn with(values: &[u32], of: impl Fn(u32) -> Parameters) -> Vec<Parameters> {
    values.iter().map(|value| of(*value)).collect()
}

fn around(value: u32, step: u32) -> [u32; 2] {
    [value.saturating_sub(step), value + step]
}

fn halved_doubled(value: u32) -> [u32; 2] {
    [value / 2, (value * 2).max(1)]
}
