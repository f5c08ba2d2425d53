//! The rows as an Arrow IPC stream: complete up to the last flush, whatever happens to the
//! recorder.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, StringBuilder, UInt32Builder};
use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use arrow_buffer::NullBufferBuilder;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_ipc::{CompressionType, MetadataVersion};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use crate::record::difference::Interval;

/// Columns before those of the events: name, type, and whether a row may lack it.
const FIXED: [(&str, DataType, bool); 18] = [
    ("seq", DataType::UInt64, false),
    ("interval", DataType::UInt64, false),
    ("lost", DataType::UInt64, false),
    ("time_ns", DataType::UInt64, false),
    ("tsc", DataType::UInt64, false),
    ("cpu", DataType::UInt32, false),
    ("pid", DataType::UInt32, false),
    ("tid", DataType::UInt32, false),
    ("comm", DataType::Utf8, false),
    ("vm", DataType::UInt32, true),
    ("vcpu", DataType::Int32, true),
    ("mode", DataType::Utf8, true),
    ("length_ns", DataType::UInt64, false),
    ("length_instructions", DataType::UInt64, true),
    ("length_cycles", DataType::UInt64, true),
    ("time_enabled", DataType::UInt64, false),
    ("time_running", DataType::UInt64, false),
    ("throttled_ns", DataType::UInt64, false),
];
/// The column of the stacks that rows interrupt, after those of the events: the number of a stack
/// until they have names, then the line of `stacks.folded`.
pub const STACK: &str = "stack";
/// Where the columns that say what ran begin, `cpu` to `mode`; the others are numbers.
const THREAD_AT: usize = 5;

/// The most values that wait before they are written to the file, 1 MiB: bounds the recorder's
/// memory.
const BATCH_VALUES: usize = 1 << 17;
/// The zstd level: 3, the default, needs more time and makes the file no smaller.
const LEVEL: i32 = 1;

/// The schema of a recording with these event columns.
pub fn schema(events: &[String]) -> SchemaRef {
    let fixed = FIXED
        .iter()
        .map(|(name, kind, nullable)| Field::new(*name, kind.clone(), *nullable));
    let events = events
        .iter()
        .map(|name| Field::new(name, DataType::UInt64, true));
    Arc::new(Schema::new(fixed.chain(events).collect::<Vec<_>>()))
}

/// The schema with the column of stacks.
pub fn with_stacks(schema: &Schema) -> SchemaRef {
    let stack = Field::new(STACK, DataType::UInt32, true);
    let fields = schema.fields().iter().cloned();
    Arc::new(Schema::new(
        fields.chain([Arc::new(stack)]).collect::<Vec<_>>(),
    ))
}

/// Which event columns measure the length of an interval.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lengths {
    /// Column of the retired instructions.
    pub instructions: Option<usize>,
    /// Column of the core cycles.
    pub cycles: Option<usize>,
}

/// A column of numbers that wait. Each row has dozens: a vector and its nulls take a third of the
/// time of Arrow's builder.
#[derive(Debug)]
struct Numbers {
    values: Vec<u64>,
    nulls: NullBufferBuilder,
}

impl Numbers {
    fn new() -> Self {
        Self {
            values: Vec::new(),
            nulls: NullBufferBuilder::new(0),
        }
    }

    fn append(&mut self, number: Option<u64>) {
        self.values.push(number.unwrap_or(0));
        if number.is_some() {
            self.nulls.append_non_null();
        } else {
            self.nulls.append_null();
        }
    }

    /// Take all numbers out; the next batch will be about as long.
    fn finish(&mut self) -> ArrayRef {
        let empty = Vec::with_capacity(self.values.len());
        let values = std::mem::replace(&mut self.values, empty);
        Arc::new(UInt64Array::new(values.into(), self.nulls.finish()))
    }
}

/// Rows that wait for the next flush.
#[derive(Debug)]
pub struct Batch {
    schema: SchemaRef,
    lengths: Lengths,
    numbers: [Numbers; 11],
    cpu: UInt32Builder,
    pid: UInt32Builder,
    tid: UInt32Builder,
    comm: StringBuilder,
    vm: UInt32Builder,
    vcpu: Int32Builder,
    mode: StringBuilder,
    events: Vec<Numbers>,
    stacks: Option<UInt32Builder>,
    rows: usize,
}

impl Batch {
    /// An empty batch of this schema.
    pub fn new(schema: SchemaRef, lengths: Lengths) -> Self {
        let stacks = schema.column_with_name(STACK).map(|_| UInt32Builder::new());
        let others = FIXED.len() + usize::from(stacks.is_some());
        let events = schema.fields().len().saturating_sub(others);
        Self {
            schema,
            lengths,
            numbers: std::array::from_fn(|_| Numbers::new()),
            cpu: UInt32Builder::new(),
            pid: UInt32Builder::new(),
            tid: UInt32Builder::new(),
            comm: StringBuilder::new(),
            vm: UInt32Builder::new(),
            vcpu: Int32Builder::new(),
            mode: StringBuilder::new(),
            events: (0..events).map(|_| Numbers::new()).collect(),
            stacks,
            rows: 0,
        }
    }

    /// The number of rows that wait.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Do enough rows wait to be written?
    pub fn full(&self) -> bool {
        self.rows * self.schema.fields().len() >= BATCH_VALUES
    }

    /// Add a row.
    pub fn push(&mut self, interval: &Interval, tsc: u64) {
        let row = &interval.row;
        let length = |column: Option<usize>| {
            column.and_then(|column| interval.columns.get(column).copied().flatten())
        };
        let numbers = [
            Some(row.seq),
            Some(row.interval),
            Some(interval.lost),
            Some(row.time_ns),
            Some(tsc),
            Some(interval.length_ns),
            length(self.lengths.instructions),
            length(self.lengths.cycles),
            Some(row.enabled_ns),
            Some(row.running_ns),
            Some(interval.throttled_ns),
        ];
        for (builder, number) in self.numbers.iter_mut().zip(numbers) {
            builder.append(number);
        }
        self.cpu.append_value(row.cpu);
        self.pid.append_value(row.pid);
        self.tid.append_value(row.tid);
        self.comm.append_value(&row.comm);
        self.vm.append_option((row.vm != 0).then_some(row.vm));
        self.vcpu.append_option((row.vcpu >= 0).then_some(row.vcpu));
        self.mode
            .append_option(row.layer.map(super::row::Layer::name));
        for (builder, value) in self.events.iter_mut().zip(&interval.columns) {
            builder.append(*value);
        }
        if let Some(stacks) = &mut self.stacks {
            stacks.append_option(interval.stack);
        }
        self.rows += 1;
    }

    /// Take all rows out as one record batch.
    fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        self.rows = 0;
        let mut columns: Vec<_> = self.numbers.iter_mut().map(Numbers::finish).collect();
        columns.extend(self.events.iter_mut().map(Numbers::finish));
        let thread: [ArrayRef; 7] = [
            Arc::new(self.cpu.finish()),
            Arc::new(self.pid.finish()),
            Arc::new(self.tid.finish()),
            Arc::new(self.comm.finish()),
            Arc::new(self.vm.finish()),
            Arc::new(self.vcpu.finish()),
            Arc::new(self.mode.finish()),
        ];
        columns.splice(THREAD_AT..THREAD_AT, thread);
        if let Some(stacks) = &mut self.stacks {
            columns.push(Arc::new(stacks.finish()));
        }
        RecordBatch::try_new(self.schema.clone(), columns)
    }
}

/// The file `intervals.arrows`.
pub struct Stream(StreamWriter<BufWriter<File>>);

impl std::fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Stream")
    }
}

impl Stream {
    /// Begin the file.
    ///
    /// Fails when the file cannot be made or written.
    pub fn create(path: &Path, schema: &Schema) -> Result<Self, ArrowError> {
        let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)?
            .try_with_compression(Some(CompressionType::ZSTD))?
            .try_with_compression_level(Some(LEVEL))?;
        let file = BufWriter::new(File::create(path)?);
        let mut writer = StreamWriter::try_new_with_options(file, schema, options)?;
        writer.flush()?;
        Ok(Self(writer))
    }

    /// Append the waiting rows and hand them to the kernel.
    ///
    /// Fails when the file cannot be written.
    pub fn flush(&mut self, batch: &mut Batch) -> Result<(), ArrowError> {
        if batch.rows() > 0 {
            self.0.write(&batch.finish()?)?;
            self.0.flush()?;
        }
        Ok(())
    }

    /// Mark the end of the stream.
    ///
    /// Fails when the file cannot be written.
    pub fn finish(mut self) -> Result<(), ArrowError> {
        self.0.finish()
    }
}

/// Begin the stream anew with these columns, which are those that it has and more. Its rows get 0 in
/// the new ones.
///
/// Fails when it cannot be read, and when a file beside it cannot be written.
pub fn widened(path: &Path, schema: &SchemaRef) -> Result<Stream, ArrowError> {
    let fresh = path.with_extension("wider.tmp");
    let mut wider = Stream::create(&fresh, schema)?;
    for batch in Batches::open(path)? {
        let mut columns = batch.columns().to_vec();
        let zeros = || UInt64Array::from(vec![0; batch.num_rows()]);
        columns.resize_with(schema.fields().len(), || Arc::new(zeros()));
        wider
            .0
            .write(&RecordBatch::try_new(schema.clone(), columns)?)?;
    }
    wider.0.flush()?;
    std::fs::rename(&fresh, path)?;
    Ok(wider)
}

/// The complete batches of a stream, up to where a killed recorder left it.
#[derive(Debug)]
pub struct Batches(StreamReader<BufReader<File>>);

impl Batches {
    /// Open a stream.
    ///
    /// Fails when the file cannot be opened or does not begin as a stream of Arrow.
    pub fn open(path: &Path) -> Result<Self, ArrowError> {
        StreamReader::try_new(BufReader::new(File::open(path)?), None).map(Self)
    }

    pub fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}

impl Iterator for Batches {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        // An error is the torn batch at the end.
        self.0.next()?.ok()
    }
}
