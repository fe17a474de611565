//! `steptally inspect`: what is this file?

use steptally_report::{Inspection, inspection_text, to_json};

use crate::args::{Format, InspectArgs};
use crate::failure::{Code, Failure};
use crate::{input, output};

pub(crate) fn run(args: &InspectArgs) -> Result<Code, Failure> {
    let import = input::read(&args.path, &args.reading)?;
    let inspection = Inspection::new(output::tool(), input::summary(&import), &import.traces);
    let text = match args.format {
        Format::Json => to_json(&inspection),
        Format::Text => inspection_text(&inspection, &output::style(false, 0)),
    };
    output::write(&text, None)?;
    Ok(if inspection.partial { Code::Partial } else { Code::Ok })
}
