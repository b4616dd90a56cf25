//! What stands before a line of NCCL: who wrote it.
//!
//! `HOST:PID:TID [DEVICE]`, after whatever mpirun, srun, kubectl or a log service put before it.
//! Lines of ranks tear into each other, so a prefix may stand anywhere in a line, or be cut.

/// Who wrote a line.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Writer<'a> {
    /// The server.
    pub host: &'a str,
    /// The process.
    pub process: u32,
    /// The GPU's number in the process.
    pub device: i32,
}

/// The last writer that is named in `text`.
pub(super) fn writer(text: &str) -> Option<Writer<'_>> {
    let mut end = text.len();
    // From the right: `[device]`, and before it the three parts.
    while let Some(open) = text[..end].rfind('[') {
        end = open;
        let Some(close) = text[open..].find(']') else { continue };
        let Ok(device) = text[open + 1..open + close].parse() else { continue };
        let Some(before) = text[..open].strip_suffix(' ') else { continue };
        let Some((before, thread)) = before.rsplit_once(':') else { continue };
        let Some((host, process)) = before.rsplit_once(':') else { continue };
        if thread.is_empty() || !thread.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Ok(process) = process.parse() else { continue };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let begin = host.bytes().rposition(|byte| !is_name(byte)).map_or(0, |at| at + 1);
        let host = &host[begin..];
        if host.bytes().any(|byte| byte.is_ascii_alphanumeric()) {
            return Some(Writer { host, process, device });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_all_launchers_are_known() {
        let found = |text| writer(text).map(|w| (w.host.to_owned(), w.process, w.device));
        let known = [
            "n-1.x:77:78 [3] ",
            " 0: n-1.x:77:78 [3] ",
            "[1,0]<stdout>:n-1.x:77:78 [3] ",
            "[1,0]<stdout>: n-1.x:77:78 [3] ",
            "[155] n-1.x:77:78 [3] ",
            "| 2025-01-02T03:04:05.123Z | n-1.x:77:78 [3] ",
            "[2025-01-02 03:04:05] n-1.x:77:78 [3] transport.cc:33 (func) ",
            "n-1.x:77:78 [3] ncclTopoPrint, 316 ",
            "torn12:3n:4: n-1.x:77:78 [3] ",
        ];
        for text in known {
            assert_eq!(found(text), Some(("n-1.x".to_owned(), 77, 3)), "{text}");
        }
        for text in ["", "79:578085 [7] ", "[0]", "a:b:c [0] ", ":1:2 [0] ", "h:1:2 [x] ", "é:[1]"]
        {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
