//! The thread that writes what the guest's CPU has recorded.

use std::fs::File;
use std::io::BufWriter;
use std::thread::{self, JoinHandle};

use vtax_model::traces::vtrace::{Codec, Header, Writer};

use crate::batch::FromGuest;
use crate::options::TraceOptions;

/// A running writer of a trace. It ends with the guest's run; the error is a reason.
pub type Writing = JoinHandle<Result<(), String>>;

/// Start to write the guest's run into the file that the options name.
pub fn start(options: &TraceOptions, mut guest: FromGuest) -> Result<Writing, String> {
    let failed = |reason: &dyn std::fmt::Display| format!("{}: {reason}", options.out.display());
    let file = File::create(&options.out).map_err(|error| failed(&error))?;
    let header = Header {
        recorder: format!("vtax paging trace {}", env!("CARGO_PKG_VERSION")),
        memory_bytes: Some(options.memory_bytes),
        interval_instructions: options.sampling.map(|sampling| sampling.interval),
        ..Header::default()
    };
    let codec = if options.pack {
        Codec::Zstd
    } else {
        Codec::Plain
    };
    let mut writer =
        Writer::new(BufWriter::new(file), &header, codec).map_err(|error| failed(&error))?;
    thread::Builder::new()
        .name("vtax-trace".into())
        .spawn(move || {
            let written = writer.record(&mut guest);
            written.map_err(|error| error.to_string())?;
            writer.finish().map_err(|error| error.to_string())?;
            Ok(())
        })
        .map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use std::env::temp_dir;
    use std::fs;
    use std::process;

    use vtax_model::step::Step;
    use vtax_model::traces::open;

    use super::*;
    use crate::recorder::Recorder;

    #[test]
    fn what_was_recorded_is_in_the_file() {
        let out = temp_dir().join(format!("vtax-trace-test-{}", process::id()));
        let options = TraceOptions {
            out: out.clone(),
            summary: out.clone(),
            memory_bytes: 1 << 20,
            user_only: false,
            sampling: None,
            instruction_tlb: None,
            pack: true,
        };
        let (mut recorder, guest) = Recorder::new(0);
        let writing = start(&options, guest).unwrap();
        for i in 0..10_000 {
            if recorder.reference(16 * i, i % 2 == 1) {
                recorder.cut(3 * i);
            }
        }
        recorder.finish(30_000);
        writing.join().unwrap().unwrap();
        let bytes = fs::read(&out).unwrap();
        fs::remove_file(&out).unwrap();
        let mut trace = open(Box::new(std::io::Cursor::new(bytes)), "test").unwrap();
        assert_eq!(trace.header().unwrap().memory_bytes, Some(1 << 20));
        let (mut seen, mut counted) = (0, 0);
        while let Some(step) = trace.step().unwrap() {
            if let Step::References {
                references,
                instructions,
                ..
            } = step
            {
                for reference in references {
                    let expected = (16 * seen, seen % 2 == 1);
                    assert_eq!((reference.address().0, reference.write()), expected);
                    seen += 1;
                }
                counted += instructions;
            }
        }
        assert_eq!((seen, counted), (10_000, 30_000));
    }
}
