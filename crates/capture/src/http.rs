//! HTTP/1.1 to one server: one connection per request, nothing followed, nothing unbounded.
//!
//! No pool, so that no socket outlives its request; no proxy, so that `HTTP_PROXY` cannot send a
//! request for a local server elsewhere; no redirects, so that a key goes to nobody else.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::error::{HttpError, HttpErrorKind, UrlError};
use crate::secret::Secret;

/// No answer that is read as a whole may be larger.
pub const MAX_BODY_BYTES: usize = 16 << 20;

/// Opening a connection may take so long.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How bytes get to the server.
#[derive(Clone, Debug)]
pub enum Transport {
    /// TCP to the URL's host and port.
    Tcp,
    /// Pipes in memory, each handed to a server in this process. For tests under a paused clock.
    Memory(mpsc::UnboundedSender<DuplexStream>),
}

/// Which key a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ordinary endpoints: the API key, if there is one.
    User,
    /// Endpoints that change the server: the admin key, else the API key.
    Admin,
}

/// The keys that a server wants, each as `Authorization: Bearer`.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// For ordinary endpoints.
    pub api: Option<Secret>,
    /// For endpoints that change the server; without it the API key is used.
    pub admin: Option<Secret>,
}

/// One server.
#[derive(Clone, Debug)]
pub struct Client {
    host: String,
    port: u16,
    prefix: String,
    keys: Keys,
    transport: Transport,
}

/// An answer that was read as a whole.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its body.
    pub body: Bytes,
    /// The `server` header: which program answered.
    pub server: Option<String>,
}

impl Reply {
    /// The body as text; bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    /// A client for `http://HOST[:PORT][/PREFIX]`. Without a port it is 80.
    ///
    /// # Errors
    /// When `url` is no such URL; `https` is not spoken.
    pub fn new(url: &str, keys: Keys) -> Result<Self, UrlError> {
        let bad = |reason: &str| UrlError::Malformed { url: shown(url), reason: reason.to_owned() };
        let uri: hyper::Uri = url.trim().parse().map_err(|_| bad("it cannot be parsed"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(UrlError::Https { url: shown(url) }),
            _ => return Err(bad("it does not begin with http://")),
        }
        let host =
            uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("it has no host"))?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(bad("it holds credentials; give keys by option or environment"));
        }
        if uri.query().is_some() {
            return Err(bad("it has a query"));
        }
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(80),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            keys,
            transport: Transport::Tcp,
        })
    }

    /// The same client over another transport.
    #[must_use]
    pub fn over(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// The server's host, as in the URL.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The server's port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the server is another process; `None` for one behind pipes in memory.
    #[must_use]
    pub fn is_remote(&self) -> Option<bool> {
        matches!(self.transport, Transport::Tcp).then_some(true)
    }

    /// The URL, for people.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{}", self.authority(), self.prefix)
    }

    /// The secrets that this client sends.
    pub fn secrets(&self) -> impl Iterator<Item = Secret> + use<> {
        let Keys { api, admin } = self.keys.clone();
        api.into_iter().chain(admin)
    }

    /// Whether an admin key was given; without one the API key is sent in its place.
    #[must_use]
    pub fn has_admin_key(&self) -> bool {
        self.keys.admin.is_some()
    }

    /// Asks for `path`, and reads the answer.
    ///
    /// # Errors
    /// When there is no answer within `limit`, or it is not of status 200.
    pub async fn get(&self, path: &str, limit: Duration) -> Result<Reply, HttpError> {
        self.whole(Method::GET, path, None, Role::User, limit).await
    }

    /// Sends `body` as JSON to `path`, and reads the answer.
    ///
    /// # Errors
    /// When there is no answer within `limit`, or it is not of status 200.
    pub async fn post(
        &self,
        path: &str,
        body: Option<&serde_json::Value>,
        role: Role,
        limit: Duration,
    ) -> Result<Reply, HttpError> {
        self.whole(Method::POST, path, body, role, limit).await
    }

    /// Sends `body` to `path` and hands back the answer's body as it comes. The head must come
    /// within `limit`.
    ///
    /// # Errors
    /// When there is no answer within `limit`, or it is not of status 200.
    pub async fn stream(
        &self,
        path: &str,
        body: &serde_json::Value,
        limit: Duration,
    ) -> Result<BodyStream, HttpError> {
        let mut connection = self.connect(path).await?;
        let sent = tokio::time::Instant::now();
        let request = connection.send(self, Method::POST, path, Some(body), Role::User);
        let response = timeout(limit, request)
            .await
            .map_err(|_| late(path, "the first byte of an answer", limit))??;
        if response.status() != StatusCode::OK {
            let (status, location) = (response.status(), location(&response));
            let body = read_all(path, response).await.unwrap_or_default();
            return Err(refused(path, status, location, &body));
        }
        Ok(BodyStream {
            path: path.to_owned(),
            sent,
            body: response.into_body(),
            _connection: connection,
        })
    }

    /// Whether the server has an endpoint, without using it; `None` when it does not tell.
    ///
    /// # Errors
    /// When there is no answer within `limit`.
    pub async fn has_endpoint(
        &self,
        path: &str,
        limit: Duration,
    ) -> Result<Option<bool>, HttpError> {
        let exchange = async {
            let mut connection = self.connect(path).await?;
            let response = connection.send(self, Method::OPTIONS, path, None, Role::Admin).await?;
            Ok(match response.status().as_u16() {
                404 => Some(false),
                200 | 204 | 405 => Some(true),
                _ => None,
            })
        };
        timeout(limit, exchange).await.map_err(|_| late(path, "an answer", limit))?
    }

    /// Whether something accepts connections there. Sends nothing.
    pub async fn accepts_connections(&self) -> bool {
        matches!(timeout(CONNECT_LIMIT, self.open()).await, Ok(Ok(_)) | Err(_))
    }

    async fn whole(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
        role: Role,
        limit: Duration,
    ) -> Result<Reply, HttpError> {
        let exchange = async {
            let mut connection = self.connect(path).await?;
            let response = connection.send(self, method, path, body, role).await?;
            let (status, location) = (response.status(), location(&response));
            let server = response
                .headers()
                .get(hyper::header::SERVER)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned);
            let body = read_all(path, response).await?;
            if status == StatusCode::OK {
                Ok(Reply { body, server })
            } else {
                Err(refused(path, status, location, &body))
            }
        };
        timeout(limit, exchange).await.map_err(|_| late(path, "an answer", limit))?
    }

    async fn connect(&self, path: &str) -> Result<Connection, HttpError> {
        let unreachable = |error| HttpError::new(path, HttpErrorKind::Unreachable(error));
        let stream = timeout(CONNECT_LIMIT, self.open())
            .await
            .map_err(|_| late(path, "a connection", CONNECT_LIMIT))?
            .map_err(unreachable)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(path, &error))?;
        let task = tokio::spawn(async move {
            // What goes wrong on the connection reaches the request.
            let _ = connection.await;
        });
        Ok(Connection { sender, task })
    }

    async fn open(&self) -> io::Result<Stream> {
        match &self.transport {
            Transport::Tcp => {
                let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Transport::Memory(server) => {
                let (ours, theirs) = tokio::io::duplex(64 << 10);
                let gone = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
                server.send(theirs).map_err(gone)?;
                Ok(Stream::Memory(ours))
            }
        }
    }

    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    fn key(&self, role: Role) -> Option<&Secret> {
        match role {
            Role::User => self.keys.api.as_ref(),
            Role::Admin => self.keys.admin.as_ref().or(self.keys.api.as_ref()),
        }
    }
}

/// An answer's body, piece by piece. The connection closes when this is dropped.
#[derive(Debug)]
pub struct BodyStream {
    path: String,
    sent: tokio::time::Instant,
    body: Incoming,
    _connection: Connection,
}

impl BodyStream {
    /// When the request was sent; the connection was open by then.
    #[must_use]
    pub fn sent(&self) -> tokio::time::Instant {
        self.sent
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// When the connection breaks, or nothing comes for `limit`.
    pub async fn next(&mut self, limit: Duration) -> Result<Option<Bytes>, HttpError> {
        loop {
            let frame = timeout(limit, self.body.frame())
                .await
                .map_err(|_| late(&self.path, "more of an answer", limit))?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(broken(&self.path, &error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

#[derive(Debug)]
struct Connection {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    task: tokio::task::JoinHandle<()>,
}

impl Connection {
    async fn send(
        &mut self,
        client: &Client,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
        role: Role,
    ) -> Result<Response<Incoming>, HttpError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", client.prefix))
            .header(HOST, client.authority())
            .header("accept", "*/*")
            .header("user-agent", concat!("steptally/", env!("CARGO_PKG_VERSION")));
        if let Some(key) = client.key(role) {
            request = request.header(AUTHORIZATION, format!("Bearer {}", key.reveal()));
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let request = request
            .body(Full::new(bytes))
            .map_err(|error| HttpError::new(path, HttpErrorKind::Invalid(error.to_string())))?;
        self.sender.send_request(request).await.map_err(|error| broken(path, &error))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read_all(path: &str, response: Response<Incoming>) -> Result<Bytes, HttpError> {
    let too_large = || HttpError::new(path, HttpErrorKind::TooLarge(MAX_BODY_BYTES));
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(path, &error))?;
        if let Ok(data) = frame.into_data() {
            if bytes.len() + data.len() > MAX_BODY_BYTES {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.into())
}

fn location(response: &Response<Incoming>) -> Option<String> {
    let value = response.headers().get(LOCATION)?;
    Some(value.to_str().unwrap_or("an unreadable place").to_owned())
}

fn refused(path: &str, status: StatusCode, location: Option<String>, body: &[u8]) -> HttpError {
    let detail = short(&String::from_utf8_lossy(body));
    let kind = match (status.as_u16(), location) {
        (300..=399, to) => HttpErrorKind::Redirect(to.unwrap_or_else(|| "nowhere".to_owned())),
        (401, _) => HttpErrorKind::Unauthorized,
        (403, _) => HttpErrorKind::Forbidden,
        (404 | 405, _) => HttpErrorKind::NotFound,
        (409, _) => HttpErrorKind::Conflict(detail),
        (503, _) => HttpErrorKind::Unavailable,
        (status, _) => HttpErrorKind::Status { status, detail },
    };
    HttpError::new(path, kind)
}

fn broken(path: &str, error: &hyper::Error) -> HttpError {
    HttpError::new(path, HttpErrorKind::Disconnected(error.to_string()))
}

fn late(path: &str, waiting_for: &'static str, limit: Duration) -> HttpError {
    HttpError::new(path, HttpErrorKind::TimedOut { waiting_for, limit })
}

/// The beginning of a text, on one line.
pub(crate) fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// A URL as typed, without credentials.
fn shown(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
            short(&format!("{scheme}://{rest}"))
        }
        None => short(url),
    }
}

/// A connection of either transport.
#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Memory(DuplexStream),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Memory(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Memory(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Memory(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Memory(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let client = Client::new("http://localhost:30000/", Keys::default()).unwrap();
        assert_eq!((client.host(), client.port()), ("localhost", 30000));
        assert_eq!(client.url(), "http://localhost:30000");
        let client = Client::new("http://[::1]:8000/base/", Keys::default()).unwrap();
        assert_eq!(client.url(), "http://[::1]:8000/base");
        assert_eq!(client.host(), "::1");
        for (url, words) in [
            ("https://host:1", "https is not spoken"),
            ("localhost:30000", "does not begin with http://"),
            ("http://", "cannot be parsed"),
            ("http://user:planted@host/", "credentials"),
            ("http://host/?a=1", "query"),
        ] {
            let error = Client::new(url, Keys::default()).unwrap_err();
            let text = format!("{error} {}", error.hint());
            assert!(text.contains(words), "{url}: {text}");
            assert!(!text.contains("planted"), "{text}");
        }
    }
}
