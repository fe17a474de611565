//! `steptally roofline`: what should a decode step take at least?

use steptally_analyze::roofline::roofline;
use steptally_report::{RooflineReport, roofline_schema, roofline_text, to_json};

use crate::args::Format;
use crate::bound::{self, Served, hinted};
use crate::failure::{Code, Failure};
use crate::output;
use crate::roofline_args::RooflineArgs;

pub(crate) fn run(args: RooflineArgs) -> Result<Code, Failure> {
    let to_file = args.output.as_deref();
    let (Some(model), Some(gpu)) = (&args.model, &args.gpu) else {
        output::write(&roofline_schema(), to_file)?;
        return Ok(Code::Ok);
    };
    let (model, files) = bound::model_config(model, args.bound.quantization.as_deref())?;
    let gpu = bound::gpu(gpu, args.bound.hardware.as_deref())?;
    let measured = bound::measured(args.bound.measured.as_deref())?;
    let (deployment, _) = bound::deployment(&args.bound, &Served::default());
    let bound = roofline(&model, &gpu, &deployment, &measured)
        .map_err(|error| hinted(error.to_string(), Failure::usage))?;
    let report = RooflineReport::new(output::tool(), files, bound);
    let text = match args.format {
        Format::Json => to_json(&report),
        Format::Text => roofline_text(&report, &output::style(to_file.is_some(), 0)),
    };
    output::write(&text, to_file)?;
    Ok(Code::Ok)
}
