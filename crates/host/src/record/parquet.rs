//! The finished rows: `intervals.parquet`, from the stream.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::record::spill::Spill;
use crate::record::stream::{Batches, STACK};

/// Rows of one row group. The footer's entry for each group stays in memory to the end, about 20 KB
/// with 40 columns; the rows themselves do not ([`Spill`]).
const GROUP_ROWS: usize = 1 << 20;
/// The most rows of one page, and the most values of all columns' pages together, which wait in
/// memory.
const PAGE_ROWS: usize = 8192;
const PAGE_VALUES: usize = 20 * PAGE_ROWS;
/// The most values with more columns than [`MANY_COLUMNS`], whose writers take as much memory as
/// the values.
const PAGE_VALUES_OF_MANY: usize = 12 * PAGE_ROWS;
/// Level 3 makes the files no smaller, and needs 3 MB more for 40 columns.
const LEVEL: i32 = 1;
/// With more columns than this, each column has a compressor that takes less memory and compresses
/// less.
const MANY_COLUMNS: usize = 80;
/// Columns that only grow, or nearly so.
const GROWING: [&str; 6] = [
    "seq",
    "interval",
    "time_ns",
    "tsc",
    "time_enabled",
    "time_running",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    pub rows: u64,
    /// The file's size in bytes.
    pub bytes: u64,
}

/// Write all complete batches of a stream; the file appears under its name when it is complete.
/// `lines`: for the number of each stack the line of the file that has them; a row whose stack has
/// no line gets none.
///
/// Fails when `stream` is not the stream of a recording, or when a file beside `target` cannot be
/// written. A torn batch ends the stream without an error.
pub fn finish(stream: &Path, target: &Path, lines: &[u32]) -> Result<Written, ParquetError> {
    let batches = Batches::open(stream)?;
    let fresh = target.with_extension("parquet.tmp");
    let properties = properties(&batches.schema())?;
    let spill = Spill::new(target.with_extension("pages.tmp"));
    let options = ArrowWriterOptions::new()
        .with_properties(properties)
        .with_page_store_factory(Arc::new(spill));
    let file = File::create(&fresh)?;
    let mut writer = ArrowWriter::try_new_with_options(file, batches.schema(), options)?;
    let mut rows = 0;
    for batch in batches {
        rows += batch.num_rows() as u64;
        writer.write(&placed(batch, lines)?)?;
    }
    writer.close()?;
    let bytes = std::fs::metadata(&fresh)?.len();
    std::fs::rename(&fresh, target)?;
    Ok(Written { rows, bytes })
}

fn placed(batch: RecordBatch, lines: &[u32]) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let Some((at, _)) = schema.column_with_name(STACK) else {
        return Ok(batch);
    };
    let mut columns = batch.columns().to_vec();
    let numbers = batch.column(at).as_primitive_opt::<UInt32Type>();
    let numbers = numbers.ok_or_else(|| ArrowError::CastError(STACK.to_owned()))?;
    let line = |number: u32| lines.get(usize::try_from(number).ok()?).copied();
    let found: UInt32Array = numbers.iter().map(|number| number.and_then(line)).collect();
    columns[at] = Arc::new(found);
    RecordBatch::try_new(schema, columns)
}

fn properties(schema: &SchemaRef) -> Result<WriterProperties, ParquetError> {
    let columns = schema.fields().len().max(1);
    let (page_values, compression) = if columns > MANY_COLUMNS {
        (PAGE_VALUES_OF_MANY, Compression::LZ4_RAW)
    } else {
        (PAGE_VALUES, Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
    };
    let page_rows = (page_values / columns).clamp(1, PAGE_ROWS);
    let mut properties = WriterProperties::builder()
        .set_compression(compression)
        // The writer would keep both for each page until the end: memory that grows with the
        // recording.
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_data_page_row_count_limit(page_rows)
        // A page has as many different values as rows.
        .set_dictionary_page_size_limit(8 * page_rows);
    for field in schema.fields() {
        if field.data_type() == &DataType::UInt64 && GROWING.contains(&field.name().as_str()) {
            let column = ColumnPath::from(field.name().as_str());
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
    }
    Ok(properties.build())
}
