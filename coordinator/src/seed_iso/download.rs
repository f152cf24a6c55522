//! Downloads of seed ISOs and their checksums, by token.
//!
//! Whatever is wrong with a URL, the answer is the same 404: a guess must not
//! learn whether it was close.

use std::io::SeekFrom;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use super::layout::Extent;
use super::open::Opened;
use super::overlay::Piece;
use super::{Iso, SeedIsos, Sources};
use crate::base_image::Lease;

/// Seconds after which a download is tried again.
const RETRY_AFTER: &str = "10";
/// Bytes that one download holds in memory.
const CHUNK: usize = 64 * 1024;

pub fn download_router(isos: Arc<SeedIsos>) -> Router {
    Router::new().route("/elemental/seedimage/{token}/{file}", get(answer_request)).with_state(isos)
}

async fn answer_request(
    State(isos): State<Arc<SeedIsos>>,
    Path((token, file)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let Some(wanted) = parse_file(&file) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let name = match wanted {
        Wanted::Checksum { iso } => iso,
        Wanted::Iso => &file,
    };
    match (isos.open_iso(&token, name).await, wanted) {
        (Opened::Ready(iso, _), Wanted::Checksum { .. }) => checksum_response(&iso, name),
        (Opened::Ready(iso, lease), Wanted::Iso) => send_iso(&iso, lease, &headers),
        (Opened::Preparing, _) => {
            let retry = [(header::RETRY_AFTER, RETRY_AFTER)];
            let text = "this replica of the coordinator does not have the base ISO yet: retry\n";
            (StatusCode::SERVICE_UNAVAILABLE, retry, text).into_response()
        }
        (Opened::Unknown, _) => StatusCode::NOT_FOUND.into_response(),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Wanted<'a> {
    Iso,
    Checksum { iso: &'a str },
}

/// What a file name asks for. The checksum file repeats it, so it must be
/// plain.
fn parse_file(file: &str) -> Option<Wanted<'_>> {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:+".contains(&byte);
    if file.len() > 255 || !file.bytes().all(safe) {
        return None;
    }
    let iso = file.strip_suffix(".sha256");
    iso.unwrap_or(file).strip_suffix(".iso")?;
    Some(iso.map_or(Wanted::Iso, |iso| Wanted::Checksum { iso }))
}

/// As sha256sum reads it, beside a download that keeps its name.
fn checksum_response(iso: &Iso, name: &str) -> Response {
    let line = format!("{}  {name}\n", iso.sha256);
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], line).into_response()
}

#[derive(Debug, PartialEq, Eq)]
enum Range {
    Whole,
    Part(Extent),
    Unsatisfiable,
}

/// A range of RFC 9110; several ranges, and what is no range, mean the whole.
fn parse_range(text: Option<&str>, size: u64) -> Range {
    let Some((first, last)) = text.and_then(|text| text.strip_prefix("bytes=")?.split_once('-')) else {
        return Range::Whole;
    };
    let part = |at: u64, end: u64| {
        if at >= end || at >= size {
            return Range::Unsatisfiable;
        }
        Range::Part(Extent { at, len: end.min(size) - at })
    };
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => part(first, last.saturating_add(1)),
        (Ok(first), Err(_)) if last.is_empty() => part(first, u64::MAX),
        (Err(_), Ok(0)) if first.is_empty() => Range::Unsatisfiable,
        (Err(_), Ok(count)) if first.is_empty() => part(size.saturating_sub(count), size),
        _ => Range::Whole,
    }
}

fn send_iso(iso: &Iso, lease: Lease, headers: &HeaderMap) -> Response {
    let size = iso.overlay.size();
    let etag = format!("\"{}\"", iso.sha256);
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    // A part of another version would not fit: then the whole is sent.
    let current = text(header::IF_RANGE).is_none_or(|known| known == etag);
    let range = parse_range(text(header::RANGE).filter(|_| current), size);
    let (status, extent, content_range) = match range {
        Range::Whole => (StatusCode::OK, Extent { at: 0, len: size }, None),
        Range::Part(extent) => {
            let last = extent.at + extent.len - 1;
            let range = format!("bytes {}-{last}/{size}", extent.at);
            (StatusCode::PARTIAL_CONTENT, extent, Some(range))
        }
        Range::Unsatisfiable => {
            let none = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return (StatusCode::RANGE_NOT_SATISFIABLE, none).into_response();
        }
    };
    let pieces = iso.overlay.pieces(extent);
    let mut response = Response::new(Body::from_stream(read_pieces(iso.sources.clone(), pieces, lease)));
    *response.status_mut() = status;
    let mut set = |name, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, "application/x-iso9660-image");
    set(header::ACCEPT_RANGES, "bytes");
    set(header::CONTENT_LENGTH, &extent.len.to_string());
    set(header::ETAG, &etag);
    if let Some(range) = content_range {
        set(header::CONTENT_RANGE, &range);
    }
    response
}

fn read_pieces(
    sources: Sources,
    pieces: Vec<Piece>,
    lease: Lease,
) -> impl Stream<Item = std::io::Result<Bytes>> {
    async_stream::try_stream! {
        for piece in pieces {
            let (path, extent) = match piece {
                Piece::Patch(bytes) => {
                    yield bytes;
                    continue;
                }
                Piece::Base(extent) => (&sources.base, extent),
                Piece::Agent(extent) => (&sources.agent, extent),
            };
            let mut file = tokio::fs::File::open(path).await?;
            file.set_max_buf_size(CHUNK);
            file.seek(SeekFrom::Start(extent.at)).await?;
            let mut rest = file.take(extent.len);
            loop {
                let mut chunk = bytes::BytesMut::with_capacity(CHUNK);
                if rest.read_buf(&mut chunk).await? == 0 {
                    break;
                }
                yield chunk.freeze();
            }
        }
        // The file is kept until here.
        drop(lease);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_says_what_is_wanted() {
        for (file, want) in [
            ("fleet-2026-01-01T00:00:00Z.iso", Some(Wanted::Iso)),
            ("fleet.iso.sha256", Some(Wanted::Checksum { iso: "fleet.iso" })),
            ("fleet.sha256", None),
            ("fleet", None),
            ("fleet\n.iso", None),
            ("", None),
        ] {
            assert_eq!(parse_file(file), want, "{file:?}");
        }
    }

    #[test]
    fn single_range_is_served_others_yield_whole() {
        let part = |at, len| Range::Part(Extent { at, len });
        for (text, want) in [
            (None, Range::Whole),
            (Some("bytes=0-3"), part(0, 4)),
            (Some("bytes=8-"), part(8, 2)),
            (Some("bytes=8-100"), part(8, 2)),
            (Some("bytes=-3"), part(7, 3)),
            (Some("bytes=-100"), part(0, 10)),
            (Some("bytes=10-"), Range::Unsatisfiable),
            (Some("bytes=-0"), Range::Unsatisfiable),
            (Some("bytes=3-1"), Range::Whole),
            (Some("bytes=0-1,3-4"), Range::Whole),
            (Some("bytes=-"), Range::Whole),
            (Some("lines=0-3"), Range::Whole),
            (Some("nonsense"), Range::Whole),
        ] {
            assert_eq!(parse_range(text, 10), want, "{text:?}");
        }
    }
}
