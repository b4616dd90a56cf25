//! Who may ask: the host that was named, the page that asks, the token; and every answer's headers.
//!
//! A page of some other site can make a browser send requests to loopback. It cannot choose the
//! `Host` header (a rebound name is told apart), it announces itself in `Origin` and
//! `Sec-Fetch-Site`, and it cannot send JSON without asking first; all three are checked.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, ORIGIN,
    REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::Server;

/// What the page may do: load its own files, ask its own server, show its own reports.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; frame-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'self'";

/// What every guard knows.
#[derive(Clone, Debug)]
pub struct Guard {
    /// What all requests share.
    pub server: Arc<Server>,
    /// The address that was bound.
    pub bound: SocketAddr,
}

/// Lets a request through, or says why not; puts the headers on every answer.
pub async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let refusal = guard.refusal(&request);
    let token = guard.new_cookie(&request);
    let mut response = match refusal {
        Some((status, text)) => (status, text).into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    let fixed = [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "SAMEORIGIN"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    if let Some(cookie) = token {
        headers.insert(SET_COOKIE, cookie);
    }
    response
}

impl Guard {
    fn refusal(&self, request: &Request) -> Option<(StatusCode, &'static str)> {
        let headers = request.headers();
        let host = text(headers, HOST.as_str()).unwrap_or_default();
        if self.server.options.token.is_none() && !self.is_own_host(host) {
            return Some((StatusCode::MISDIRECTED_REQUEST, "this server has another name\n"));
        }
        let foreign = text(headers, ORIGIN.as_str())
            .is_some_and(|origin| origin != format!("http://{host}"))
            || text(headers, "sec-fetch-site").is_some_and(|site| site == "cross-site");
        if foreign {
            return Some((StatusCode::FORBIDDEN, "other sites may not ask\n"));
        }
        let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
        let json = text(headers, CONTENT_TYPE.as_str())
            .is_some_and(|kind| kind.starts_with("application/json"));
        if changes && !json {
            return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, "only JSON is taken\n"));
        }
        if !self.knows_token(request) {
            return Some((StatusCode::UNAUTHORIZED, "add ?token=… to the address once\n"));
        }
        None
    }

    fn is_own_host(&self, host: &str) -> bool {
        let port = self.bound.port();
        ["127.0.0.1", "localhost", "[::1]"].iter().any(|name| host == format!("{name}:{port}"))
    }

    fn knows_token(&self, request: &Request) -> bool {
        let Some(token) = &self.server.options.token else { return true };
        let headers = request.headers();
        let bearer = text(headers, AUTHORIZATION.as_str()).and_then(|v| v.strip_prefix("Bearer "));
        let cookies = text(headers, COOKIE.as_str()).unwrap_or_default();
        let cookie = cookies.split("; ").find_map(|cookie| cookie.strip_prefix("fatflow="));
        [bearer, cookie, query_token(request)].into_iter().flatten().any(|given| same(given, token))
    }

    /// A client that named the token in the address gets it as a cookie.
    fn new_cookie(&self, request: &Request) -> Option<HeaderValue> {
        let token = self.server.options.token.as_ref()?;
        let given = query_token(request)?;
        let cookie = format!("fatflow={token}; HttpOnly; SameSite=Strict; Path=/");
        same(given, token).then(|| HeaderValue::from_str(&cookie).ok()).flatten()
    }
}

fn query_token(request: &Request) -> Option<&str> {
    request.uri().query()?.split('&').find_map(|pair| pair.strip_prefix("token="))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Compares in a time that does not tell how much of the token was right.
fn same(given: &str, token: &str) -> bool {
    let bytes = given.bytes().zip(token.bytes());
    given.len() == token.len() && bytes.fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
