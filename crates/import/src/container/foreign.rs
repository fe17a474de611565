//! Names for files that are no traces this crate reads, and what to do about each.

use memchr::memmem;

macro_rules! foreign {
    ($($(#[$doc:meta])* $name:ident: $what:literal, $hint:expr;)*) => {
        /// What a file is when it is no trace that can be read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Foreign {
            $($(#[$doc])* $name,)*
        }

        impl Foreign {
            /// What it is, as a noun.
            #[must_use]
            pub fn what(self) -> &'static str {
                match self { $(Self::$name => $what,)* }
            }

            /// What to do about it.
            #[must_use]
            pub fn hint(self) -> Option<&'static str> {
                match self { $(Self::$name => $hint,)* }
            }
        }
    };
}

const UNPACK: Option<&str> = Some("unpack it first; gzip, zstd, zip and tar are read as they are");
const EXPORT_SQLITE: Option<&str> =
    Some("export the report again with `nsys export --type sqlite REPORT.nsys-rep`");

foreign! {
    /// A Git LFS pointer.
    GitPointer: "a Git LFS pointer, not the file itself",
        Some("run `git lfs pull` in the repository that it comes from");
    /// A git-annex pointer.
    AnnexPointer: "a git-annex pointer, not the file itself",
        Some("run `git annex get FILE` in the repository that it comes from");
    /// A web page.
    Html: "an HTML page, not a trace",
        Some("a download probably returned a login or error page; download the raw file");
    /// XML.
    Xml: "an XML document, not a trace",
        Some("a download may have returned an error message; look into the file");
    /// Perfetto's own format.
    Perfetto: "a Perfetto trace (protobuf)",
        Some("pass the torch.profiler JSON that it was made from");
    /// XProf / TensorFlow profiler.
    XPlane: "an XPlane profile (protobuf of XProf, JAX or TensorFlow)",
        Some("capture with torch.profiler or Nsight Systems instead");
    /// A CUDA memory snapshot.
    MemorySnapshot: "a CUDA memory snapshot of PyTorch (pickle), which holds no timing",
        Some("pass the .trace.json.gz of the same capture");
    /// Another pickle.
    Pickle: "a Python pickle, not a trace", None;
    /// Parquet.
    Parquet: "a Parquet file, not a trace", EXPORT_SQLITE;
    /// Arrow.
    Arrow: "an Arrow file, not a trace", EXPORT_SQLITE;
    /// HDF5.
    Hdf5: "an HDF5 file, not a trace", EXPORT_SQLITE;
    /// Nsight Compute.
    NsightCompute: "an Nsight Compute report, which measures single kernels",
        Some("capture a timeline with Nsight Systems or torch.profiler");
    /// Raw data of Nsight Systems.
    Qdstrm: "raw data of an unfinished Nsight Systems capture (.qdstrm)",
        Some("convert it with QdstrmImporter of the same nsys version, or capture again and \
              stop with `nsys stop` before the server ends");
    /// xz.
    Xz: "compressed with xz", UNPACK;
    /// bzip2.
    Bzip2: "compressed with bzip2", UNPACK;
    /// lz4.
    Lz4: "compressed with lz4", UNPACK;
    /// 7-Zip.
    SevenZip: "a 7-Zip archive", UNPACK;
    /// RAR.
    Rar: "a RAR archive", UNPACK;
    /// PDF.
    Pdf: "a PDF document, not a trace", None;
    /// An image.
    Image: "an image, not a trace", None;
    /// A program or library.
    Executable: "a program or library, not a trace", None;
    /// `null`, a number, a text in quotes.
    JsonValue: "a single JSON value, not a trace",
        Some("a server's reply was probably saved in place of the trace that it wrote");
    /// Plain text.
    Text: "plain text, not a trace",
        Some("torch.profiler traces are JSON; `key_averages` tables cannot be analysed");
    /// Zero bytes only.
    Zeros: "nothing but zero bytes",
        Some("the file was allocated but never written; capture again");
    /// Anything else.
    Binary: "not in any format known here",
        Some("pass a torch.profiler trace (JSON) or an SQLite export of Nsight Systems");
}

impl Foreign {
    /// What starts with `head`, which is neither empty, nor a container, nor JSON, nor SQLite.
    pub(crate) fn of(head: &[u8]) -> Self {
        const MAGICS: [(&[u8], Foreign); 17] = [
            (b"version https://git-lfs.github.com/spec/", Foreign::GitPointer),
            (b"/annex/objects/", Foreign::AnnexPointer),
            (b"PAR1", Foreign::Parquet),
            (b"ARROW1", Foreign::Arrow),
            (b"\xff\xff\xff\xff", Foreign::Arrow),
            (b"\x89HDF\r\n", Foreign::Hdf5),
            (b"NVR\0", Foreign::NsightCompute),
            (b"\xfd7zXZ\0", Foreign::Xz),
            (b"BZh", Foreign::Bzip2),
            (b"\x04\x22\x4d\x18", Foreign::Lz4),
            (b"7z\xbc\xaf\x27\x1c", Foreign::SevenZip),
            (b"Rar!\x1a\x07", Foreign::Rar),
            (b"%PDF-", Foreign::Pdf),
            (b"\x89PNG", Foreign::Image),
            (b"\xff\xd8\xff", Foreign::Image),
            (b"\x7fELF", Foreign::Executable),
            (b"MZ", Foreign::Executable),
        ];
        if let Some((_, foreign)) = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)) {
            return *foreign;
        }
        let has = |needle: &[u8]| memmem::find(head, needle).is_some();
        if let [0x80, 2..=5, ..] = head {
            let snapshot = has(b"segments") || has(b"device_traces");
            return if snapshot { Self::MemorySnapshot } else { Self::Pickle };
        }
        if head.iter().all(|&byte| byte == 0) {
            return Self::Zeros;
        }
        if is_text(head) {
            let start = head.trim_ascii_start();
            let start = start[..start.len().min(64)].to_ascii_lowercase();
            return if has(b".git/annex/objects/") && head.len() < 1024 {
                Self::AnnexPointer
            } else if serde_json::from_slice::<serde_json::Value>(head).is_ok() {
                Self::JsonValue
            } else if start.starts_with(b"<!doctype html") || start.starts_with(b"<html") {
                Self::Html
            } else if start.starts_with(b"<?xml") || start.starts_with(b"<error>") {
                Self::Xml
            } else {
                Self::Text
            };
        }
        if is_repeated_field_one(head) {
            let xplane = [&b"/host:"[..], b"/device:", b"Task Environment"];
            return if xplane.iter().any(|name| has(name)) { Self::XPlane } else { Self::Perfetto };
        }
        Self::Binary
    }
}

/// No control characters but white space (and escape, for colours).
fn is_text(head: &[u8]) -> bool {
    head.iter().all(|&byte| byte >= 0x20 || matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b))
}

/// Whether `head` is a protobuf message of nothing but length-delimited fields number 1, the last
/// of which may go on past the head. Perfetto's and XProf's top level are of this form.
fn is_repeated_field_one(mut head: &[u8]) -> bool {
    let mut fields = 0;
    while let [0x0a, rest @ ..] = head {
        let mut length = 0_u64;
        let Some(end) = rest.iter().take(5).position(|&byte| byte < 0x80) else {
            return false;
        };
        for &byte in rest[..=end].iter().rev() {
            length = length << 7 | u64::from(byte & 0x7f);
        }
        let body = &rest[end + 1..];
        // A message starts with the tag of a field that is not 0.
        if length > 0 && body.first().is_some_and(|&tag| tag < 8 || matches!(tag & 7, 3 | 4 | 6..))
        {
            return false;
        }
        fields += 1;
        if length >= body.len() as u64 {
            return true;
        }
        head = &body[length as usize..];
    }
    fields > 0 && head.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_files_are_told_apart() {
        let perfetto =
            b"\x0a\x04\x40\xc0\x84\x3d\x0a\x04\x40\x80\x89\x7a\x0a\x05\x40\xc0\x8d\xb7\x01";
        for (head, foreign) in [
            (&b"version https://git-lfs.github.com/spec/v1\noid"[..], Foreign::GitPointer),
            (b"/annex/objects/SHA256E-s3--0.json\n", Foreign::AnnexPointer),
            (
                b"../.git/annex/objects/a/b/SHA256E-s3--0.json/SHA256E-s3--0.json",
                Foreign::AnnexPointer,
            ),
            (b"null\n", Foreign::JsonValue),
            (b"\"Start profiling.\"", Foreign::JsonValue),
            (b"503", Foreign::JsonValue),
            (b"503 Service Unavailable", Foreign::Text),
            (b"\n <!DOCTYPE HTML><html>", Foreign::Html),
            (b"<?xml version='1.0'?><Error>", Foreign::Xml),
            (perfetto, Foreign::Perfetto),
            // XSpace { planes { id: 1, name: "/host:CPU", lines {.. past the head
            (b"\x0a\x50\x08\x01\x12\x09/host:CPU\x1a\x30\x08\x02", Foreign::XPlane),
            (b"\x80\x04\x95\x10\0}\x94(\x8c\x08segments", Foreign::MemorySnapshot),
            (b"\x80\x05\x95abc", Foreign::Pickle),
            (b"PAR1\x15\x04", Foreign::Parquet),
            (b"NVR\0\x01", Foreign::NsightCompute),
            (b"\xfd7zXZ\0\0", Foreign::Xz),
            (b"-----  ----\nName  Self CPU", Foreign::Text),
            (b"\0\0\0\0", Foreign::Zeros),
            (b"\x01\x02\x03\xff\xfe", Foreign::Binary),
        ] {
            assert_eq!(Foreign::of(head), foreign, "{:?}", String::from_utf8_lossy(head));
            assert!(!foreign.what().is_empty());
        }
    }
}
