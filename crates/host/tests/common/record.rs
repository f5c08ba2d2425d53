//! Runs the program as a user does, and reads what it has written.

#![allow(dead_code, reason = "each test file uses a part")]

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_vtax-host");

/// Why this machine cannot record at all; tests that record print the reason and end.
pub fn cannot_record() -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let output = record(folder.path(), &["--for", "10ms"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let absent = ["lacks CAP_", "no type information", "locked down"];
    let known = absent.iter().any(|reason| message.contains(reason));
    assert!(output.status.success() || known, "{message}");
    (!output.status.success()).then_some(message)
}

/// Skip a test on a machine that cannot record.
#[macro_export]
macro_rules! recording_or_skip {
    () => {
        if let Some(reason) = common::cannot_record() {
            eprintln!("skipped: {reason}");
            return;
        }
    };
}

/// Record into a folder.
pub fn record(out: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(["record", "--out"])
        .arg(out)
        .args(arguments)
        .output()
        .unwrap()
}

/// Record successfully, and return `record.json`.
pub fn recorded(out: &Path, arguments: &[&str]) -> Value {
    let output = record(out, arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    json(&out.join("record.json"))
}

/// A JSON file.
pub fn json(path: &Path) -> Value {
    serde_json::from_reader(File::open(path).unwrap()).unwrap()
}

/// The description of a column.
pub fn described(out: &Path, name: &str) -> Value {
    let events = json(&out.join("events.json"));
    let columns = events["columns"].as_array().unwrap();
    let found = columns.iter().find(|column| column["name"] == name);
    found.unwrap_or_else(|| panic!("no column {name}")).clone()
}

/// The finished rows.
pub struct Rows(Vec<RecordBatch>);

impl Rows {
    /// Read `intervals.parquet`.
    pub fn read(out: &Path) -> Self {
        let file = File::open(out.join("intervals.parquet")).unwrap();
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        Self(builder.build().unwrap().map(Result::unwrap).collect())
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(RecordBatch::num_rows).sum()
    }

    /// A column of 64-bit numbers.
    pub fn numbers(&self, name: &str) -> Vec<Option<u64>> {
        let columns = self
            .0
            .iter()
            .map(|batch| batch.column_by_name(name).unwrap());
        columns
            .flat_map(|column| {
                column
                    .as_primitive::<UInt64Type>()
                    .iter()
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// A column of 32-bit numbers.
    pub fn small(&self, name: &str) -> Vec<Option<u32>> {
        let columns = self
            .0
            .iter()
            .map(|batch| batch.column_by_name(name).unwrap());
        columns
            .flat_map(|column| {
                column
                    .as_primitive::<UInt32Type>()
                    .iter()
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Sum of a column.
    pub fn sum(&self, name: &str) -> u64 {
        self.numbers(name).into_iter().flatten().sum()
    }
}
