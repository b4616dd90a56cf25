//! As much of HTTP/1.1 as following a cluster needs: one page fetched, one page served.
//!
//! Plain HTTP on `std::net`: exporters and Prometheus (`/metrics`, `/federate`) speak it. Every
//! wait has an end and every answer a longest length.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The longest page that is read.
const LONGEST: u64 = 64 << 20;
/// The longest head of a request or an answer.
const LONGEST_HEAD: u64 = 64 << 10;

/// An address, `http://HOST[:PORT]/PATH`, in parts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Url {
    host: String,
    port: u16,
    path: String,
}

impl Url {
    /// Takes it apart, or says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("http://") else {
            return Err(format!("{text}: only http:// is read; put a proxy before https"));
        };
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                let port = port.parse().map_err(|_| format!("{text}: `{port}` is no port"))?;
                (host, port)
            }
            _ => (place, 80),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_plain = |text: &str| text.bytes().all(|byte| (0x21..0x7f).contains(&byte));
        if host.is_empty() || !is_plain(host) || !is_plain(path) {
            return Err(format!("{text}: write it like http://127.0.0.1:9100/metrics"));
        }
        Ok(Self { host: host.to_owned(), port, path: format!("/{path}") })
    }
}

/// Fetches a page within a time.
pub fn get(url: &Url, within: Duration) -> io::Result<String> {
    let Url { host, port, path } = url;
    let mut addresses = (host.as_str(), *port).to_socket_addrs()?;
    let address = addresses.next().ok_or_else(|| io::Error::other("no such host"))?;
    let mut stream = TcpStream::connect_timeout(&address, within)?;
    stream.set_read_timeout(Some(within))?;
    stream.set_write_timeout(Some(within))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/plain;version=0.0.4\r\n\
         Connection: close\r\n\r\n"
    )?;
    read_answer(stream)
}

/// Reads what a server answers: the page, or why there is none.
pub fn read_answer(stream: impl Read) -> io::Result<String> {
    let mut reader = BufReader::new(stream.take(LONGEST));
    let (status, headers) = head(&mut reader)?;
    let code = status.split(' ').nth(1).unwrap_or_default();
    if code != "200" {
        return Err(io::Error::other(format!("it answers {status}")));
    }
    let has = |name: &str, value: &str| {
        headers.iter().any(|(known, is)| known == name && is.eq_ignore_ascii_case(value))
    };
    let mut body = Vec::new();
    if has("transfer-encoding", "chunked") {
        read_chunks(&mut reader, &mut body)?;
    } else {
        let length = headers.iter().find(|(name, _)| name == "content-length");
        match length.and_then(|(_, length)| length.parse().ok()) {
            Some(length) => reader.take(length).read_to_end(&mut body)?,
            None => reader.read_to_end(&mut body)?,
        };
    }
    String::from_utf8(body).map_err(|_| io::Error::other("it is no text"))
}

/// The first line, and the headers by their names in small letters.
fn head(reader: &mut impl BufRead) -> io::Result<(String, Vec<(String, String)>)> {
    let mut lines = reader.take(LONGEST_HEAD);
    let mut next = || -> io::Result<String> {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Err(io::Error::other("it ends in its headers"));
        }
        Ok(line.trim_end().to_owned())
    };
    let first = next()?;
    let mut headers = Vec::new();
    loop {
        let line = next()?;
        if line.is_empty() {
            return Ok((first, headers));
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        reader.by_ref().take(LONGEST_HEAD).read_line(&mut line)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16)
            .map_err(|_| io::Error::other(format!("`{size}` is no length of a chunk")))?;
        if size == 0 {
            return Ok(());
        }
        if reader.by_ref().take(size).read_to_end(body)? as u64 != size {
            return Err(io::Error::other("it ends in a chunk"));
        }
        let mut end = String::new();
        reader.by_ref().take(2).read_line(&mut end)?;
    }
}

/// A page that others can fetch, as it is now.
#[derive(Clone, Debug, Default)]
pub struct Page(Arc<Mutex<String>>);

impl Page {
    /// Puts another text there.
    pub fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves it as `/metrics` for as long as the program runs; returns where.
    pub fn serve(&self, at: &str) -> io::Result<std::net::SocketAddr> {
        let listener = TcpListener::bind(at)?;
        let address = listener.local_addr()?;
        let page = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Whoever asks wrongly or goes away has no answer; the next one has.
                drop(page.answer(stream));
            }
        });
        Ok(address)
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.set_write_timeout(Some(Duration::from_secs(2)))?;
        let (request, _) = head(&mut BufReader::new(&stream))?;
        let is_known = request.starts_with("GET /metrics ") || request.starts_with("GET / ");
        let (status, body) = match is_known {
            true => ("200 OK", self.get()),
            false => ("404 Not Found", "there is /metrics\n".to_owned()),
        };
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart_or_refused() {
        let url = Url::parse("http://127.0.0.1:9100/metrics?a=b").unwrap();
        assert_eq!((url.host.as_str(), url.port), ("127.0.0.1", 9100));
        assert_eq!(url.path, "/metrics?a=b");
        assert_eq!(Url::parse("http://[::1]:80/x").unwrap().host, "::1");
        assert_eq!(Url::parse("http://node").unwrap().path, "/");
        for wrong in ["https://a/", "http://:9/", "http://a:b/", "http://a/ b", "ftp://a"] {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// Chunks are put together; a page that is cut short is an error and not a short page.
    #[test]
    fn chunks_are_put_together() {
        let mut body = Vec::new();
        let mut whole = BufReader::new(&b"4\r\nabcd\r\n2;x\r\nef\r\n0\r\n\r\n"[..]);
        read_chunks(&mut whole, &mut body).unwrap();
        assert_eq!(body, b"abcdef");
        for cut in [&b"4\r\nab"[..], b"zz\r\n", b""] {
            assert!(read_chunks(&mut BufReader::new(cut), &mut Vec::new()).is_err());
        }
    }

    #[test]
    fn a_page_is_fetched_as_it_is_served() {
        let page = Page::default();
        page.set("fatflow_findings 0\n".to_owned());
        let address = page.serve("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{address}/metrics")).unwrap();
        let got = get(&url, Duration::from_secs(5)).unwrap();
        assert_eq!(got, "fatflow_findings 0\n");
        let wrong = Url::parse(&format!("http://{address}/other")).unwrap();
        assert!(get(&wrong, Duration::from_secs(5)).unwrap_err().to_string().contains("404"));
    }
}
