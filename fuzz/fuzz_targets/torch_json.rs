//! Any text as a torch.profiler trace: reading ends, nothing panics, and whatever is read adds up.

#![no_main]

use libfuzzer_sys::fuzz_target;
use steptally_import::ImportOptions;
use steptally_import::torch::read_torch;

fuzz_target!(|text: &[u8]| {
    let options = ImportOptions {
        threads: Some(1),
        ..ImportOptions::default()
    };
    if let Ok(read) = read_torch(text, &options) {
        assert!(!read.lanes.is_empty());
        for lane in &read.lanes {
            let trace = &lane.trace;
            assert!(trace.kernels.start.is_sorted());
            assert!(
                trace
                    .cpu_ops
                    .duration
                    .iter()
                    .all(|duration| duration.as_ns() >= 0)
            );
        }
    }
});
