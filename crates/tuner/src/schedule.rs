//! The order of loads and multiplications in the innermost loop of GEMM, and their registers.
//!
//! Registers 0 to mu/lanes * nu - 1 hold the block of C, column after column. The other registers
//! are a pool for numbers of A and B and for products: each register returns to the pool after its
//! last use.

use std::collections::VecDeque;

use crate::parameters::Parameters;
use crate::vector::Precision;

/// A number or vector in the packed panels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// Vector `row` of the column of A in step `k`.
    A {
        /// The row, in vectors.
        row: u32,
        /// The step, from the start of the iteration.
        k: u32,
    },
    /// Number `column` of the row of B in step `k`, in every lane.
    B {
        /// The column, in numbers.
        column: u32,
        /// The step, from the start of the iteration.
        k: u32,
    },
}

/// One instruction of the loop. The fields are numbers of registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `register` = what is at `source`.
    Load {
        /// The target register.
        register: u32,
        /// Where the value is loaded from.
        source: Operand,
    },
    /// `sum` += `a` * `b`.
    Fused {
        /// The sum, in the block of C.
        sum: u32,
        /// A vector of A.
        a: u32,
        /// A number of B.
        b: u32,
    },
    /// `product` = `a` * `b`; `product` may be `a` or `b`.
    Multiply {
        /// The target register.
        product: u32,
        /// A vector of A.
        a: u32,
        /// A number of B.
        b: u32,
    },
    /// `sum` += `product`.
    Add {
        /// The sum, in the block of C.
        sum: u32,
        product: u32,
    },
    /// Prefetch the column of A for step `k` plus the distance NFTCH.
    Prefetch {
        /// The step, from the start of the iteration.
        k: u32,
    },
}

/// The instructions of `steps` steps of K.
pub fn schedule(parameters: &Parameters, precision: Precision, steps: u32) -> Vec<Step> {
    let rows = parameters.mu / parameters.vector.lanes(precision).max(1);
    Scheduler::new(parameters, rows, steps).run()
}

/// A later load, and the multiplications that use it first and last.
#[derive(Debug, Clone, Copy)]
struct Load {
    source: Operand,
    first: u32,
    last: u32,
}

/// A loaded value: its source, its register, and the multiplication that uses it last.
type Held = (Operand, u32, u32);

struct Scheduler<'a> {
    parameters: &'a Parameters,
    rows: u32,
    steps: u32,
    loads: VecDeque<Load>,
    held: Vec<Held>,
    free: VecDeque<u32>,
    products: VecDeque<(u32, u32)>,
    out: Vec<Step>,
}

impl<'a> Scheduler<'a> {
    fn new(parameters: &'a Parameters, rows: u32, steps: u32) -> Self {
        let sums = rows * parameters.nu;
        Self {
            parameters,
            rows,
            steps,
            loads: loads(rows, parameters.nu, steps),
            held: Vec::new(),
            free: (sums..parameters.vector.registers()).collect(),
            products: VecDeque::new(),
            out: Vec::new(),
        }
    }

    fn run(mut self) -> Vec<Step> {
        for _ in 0..self.parameters.ifetch {
            self.load_early();
        }
        let each_step = self.rows * self.parameters.nu;
        for at in 0..self.steps * each_step {
            let (k, within) = (at / each_step, at % each_step);
            if within == 0 && self.parameters.nfetch > 0 {
                self.out.push(Step::Prefetch { k });
            }
            self.load_until(at);
            let (column, row) = (within / self.rows, within % self.rows);
            self.multiply(at, within, Operand::A { row, k }, Operand::B { column, k });
        }
        self.add_products(0);
        self.out
    }

    /// Load what this multiplication needs, and what the next LAT multiplications use, while
    /// registers last.
    fn load_until(&mut self, at: u32) {
        while self.loads.front().is_some_and(|load| load.first <= at) {
            let register = self.take();
            self.load(register);
        }
        let ahead = at.saturating_add(self.parameters.lat);
        while self.loads.front().is_some_and(|load| load.first <= ahead) && self.load_early() {}
    }

    /// Load the next value if a register is free besides one for a product.
    fn load_early(&mut self) -> bool {
        let reserved = usize::from(!self.parameters.muladd);
        if self.loads.is_empty() || self.free.len() <= reserved {
            return false;
        }
        let register = self.take();
        self.load(register);
        true
    }

    fn load(&mut self, register: u32) {
        if let Some(load) = self.loads.pop_front() {
            let source = load.source;
            self.out.push(Step::Load { register, source });
            self.held.push((source, register, load.last));
        }
    }

    /// A free register; products are added until a register is free.
    ///
    /// `least_registers` leaves a register for each live value and one for a product, so the last
    /// alternative is never taken; register 0 would make the result wrong, and verification would
    /// find that.
    fn take(&mut self) -> u32 {
        while self.free.is_empty() && !self.products.is_empty() {
            self.add_products(self.products.len() - 1);
        }
        self.free.pop_front().unwrap_or(0)
    }

    /// The register of a loaded value, which is freed when this is its last use.
    fn operand(&mut self, source: Operand, at: u32) -> (u32, bool) {
        let Some(index) = self.held.iter().position(|held| held.0 == source) else {
            return (0, false);
        };
        let (_, register, last) = self.held[index];
        if last == at {
            self.held.swap_remove(index);
        }
        (register, last == at)
    }

    fn multiply(&mut self, at: u32, sum: u32, a: Operand, b: Operand) {
        let (a, a_ends) = self.operand(a, at);
        let (b, b_ends) = self.operand(b, at);
        if self.parameters.muladd {
            self.out.push(Step::Fused { sum, a, b });
            let ended = [(a, a_ends), (b, b_ends)];
            self.free.extend(
                ended
                    .iter()
                    .filter(|(_, ends)| *ends)
                    .map(|(register, _)| *register),
            );
            return;
        }
        // A value whose last use this is leaves its register to the product.
        let product = match (a_ends, b_ends) {
            (_, true) => b,
            (true, false) => a,
            (false, false) => self.take(),
        };
        self.out.push(Step::Multiply { product, a, b });
        if a_ends && b_ends {
            self.free.push_back(a);
        }
        self.products.push_back((sum, product));
        self.add_products(self.parameters.lat as usize);
    }

    /// Add the oldest products until `left` products are left.
    fn add_products(&mut self, left: usize) {
        while self.products.len() > left {
            if let Some((sum, product)) = self.products.pop_front() {
                self.out.push(Step::Add { sum, product });
                self.free.push_back(product);
            }
        }
    }
}

/// All loads in the order of their first use.
fn loads(rows: u32, columns: u32, steps: u32) -> VecDeque<Load> {
    let each_step = rows * columns;
    let mut loads = Vec::new();
    for k in 0..steps {
        let start = k * each_step;
        loads.extend((0..columns).map(|column| Load {
            source: Operand::B { column, k },
            first: start + column * rows,
            last: start + (column + 1) * rows - 1,
        }));
        loads.extend((0..rows).map(|row| Load {
            source: Operand::A { row, k },
            first: start + row,
            last: start + (columns - 1) * rows + row,
        }));
    }
    loads.sort_by_key(|load| load.first);
    loads.into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::vector::Vector;

    /// What a register holds.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Held {
        Value(Operand),
        Product(Operand, Operand),
    }

    /// Execute the steps on names; returns the products in each sum.
    fn sums(steps: &[Step], of_c: u32) -> HashMap<u32, Vec<(Operand, Operand)>> {
        let mut registers: HashMap<u32, Held> = HashMap::new();
        let mut sums: HashMap<u32, Vec<(Operand, Operand)>> = HashMap::new();
        let value = |registers: &HashMap<u32, Held>, register: u32| match registers[&register] {
            Held::Value(source) => source,
            Held::Product(..) => panic!("register {register} holds a product"),
        };
        for step in steps {
            match *step {
                Step::Load { register, source } => {
                    assert!(register >= of_c);
                    registers.insert(register, Held::Value(source));
                }
                Step::Fused { sum, a, b } => {
                    let product = (value(&registers, a), value(&registers, b));
                    sums.entry(sum).or_default().push(product);
                }
                Step::Multiply { product, a, b } => {
                    assert!(product >= of_c);
                    let (a, b) = (value(&registers, a), value(&registers, b));
                    registers.insert(product, Held::Product(a, b));
                }
                Step::Add { sum, product } => match registers.remove(&product) {
                    Some(Held::Product(a, b)) => sums.entry(sum).or_default().push((a, b)),
                    other => panic!("{other:?} is no product"),
                },
                Step::Prefetch { .. } => {}
            }
        }
        sums
    }

    #[test]
    fn every_sum_gets_its_products_once_and_in_order() {
        let mut tried = 0;
        for (vector, precision) in [
            (Vector::Scalar, Precision::Double),
            (Vector::Sse2, Precision::Single),
            (Vector::Avx2, Precision::Double),
            (Vector::Avx512, Precision::Single),
        ] {
            let lanes = vector.lanes(precision);
            for (rows, nu, muladd) in (1..=8)
                .flat_map(|rows| (1..=14).flat_map(move |nu| [(rows, nu, true), (rows, nu, false)]))
            {
                for (lat, ifetch, ku) in [(0, 0, 1), (3, 2, 2), (20, 64, 4)] {
                    let parameters = Parameters {
                        vector,
                        muladd,
                        lat,
                        nb: 64,
                        mu: rows * lanes,
                        nu,
                        ku,
                        ffetch: false,
                        ifetch,
                        nfetch: 1,
                        mc: 64,
                        nc: 64,
                    };
                    if parameters.least_registers(precision) > vector.registers() {
                        continue;
                    }
                    let steps = schedule(&parameters, precision, ku);
                    let sums = sums(&steps, rows * nu);
                    for sum in 0..rows * nu {
                        let (row, column) = (sum % rows, sum / rows);
                        let want: Vec<_> = (0..ku)
                            .map(|k| (Operand::A { row, k }, Operand::B { column, k }))
                            .collect();
                        assert_eq!(sums[&sum], want, "{parameters:?}");
                    }
                    let highest = steps.iter().filter_map(|step| match step {
                        Step::Load { register, .. } => Some(*register),
                        _ => None,
                    });
                    assert!(highest.max() < Some(vector.registers()));
                    tried += 1;
                }
            }
        }
        assert!(tried > 300, "{tried}");
    }

    #[test]
    fn lat_is_the_distance_of_products() {
        let parameters = Parameters {
            vector: Vector::Sse2,
            muladd: false,
            lat: 3,
            nb: 8,
            mu: 4,
            nu: 2,
            ku: 4,
            ffetch: false,
            ifetch: 0,
            nfetch: 0,
            mc: 8,
            nc: 8,
        };
        let steps = schedule(&parameters, Precision::Double, 4);
        let position = |wanted: fn(&Step) -> bool| steps.iter().position(wanted).unwrap();
        let first_add = position(|step| matches!(step, Step::Add { .. }));
        let before = steps[..first_add].iter();
        let multiplied = before
            .filter(|step| matches!(step, Step::Multiply { .. }))
            .count();
        assert_eq!(multiplied, 4, "{steps:?}");
    }
}
