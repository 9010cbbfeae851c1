package proxy

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Errors of decodeBody.
var (
	errUnknownCoding = errors.New("content-encoding is not supported")
	errBodyTooLarge  = errors.New("body is too large")
	errCorruptBody   = errors.New("body does not decode")
)

// decodeBody takes a request's content codings off, so that its prompt can be
// read; engines do not decode bodies themselves. It never holds more than limit
// bytes of output, whatever the input inflates to.
func decodeBody(encoding, body []byte, limit int) ([]byte, error) {
	var codings [][]byte
	for _, c := range bytes.Split(encoding, []byte(",")) {
		if c = bytes.ToLower(bytes.TrimSpace(c)); len(c) > 0 && string(c) != "identity" {
			codings = append(codings, c)
		}
	}
	if len(codings) > 3 {
		return nil, fmt.Errorf("%w: %d codings on top of each other", errUnknownCoding, len(codings))
	}
	// The codings are listed in the order they were applied (RFC 9110 §8.4).
	for i := len(codings) - 1; i >= 0; i-- {
		var err error
		if body, err = decodeOne(string(codings[i]), body, limit); err != nil {
			return nil, err
		}
	}
	return body, nil
}

func decodeOne(coding string, body []byte, limit int) ([]byte, error) {
	var r io.Reader
	var err error
	switch coding {
	case "gzip", "x-gzip":
		r, err = gzip.NewReader(bytes.NewReader(body))
	case "deflate":
		// The name means zlib; some clients send a raw deflate stream.
		if r, err = zlib.NewReader(bytes.NewReader(body)); err != nil {
			r, err = flate.NewReader(bytes.NewReader(body)), nil
		}
	case "zstd":
		var z *zstd.Decoder
		z, err = zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(max(limit, 8<<20))), zstd.WithDecoderLowmem(true))
		if err == nil {
			defer z.Close()
			r = z
		}
	default:
		return nil, fmt.Errorf("%w: %.40q (known: gzip, deflate, zstd, identity)", errUnknownCoding, coding)
	}
	if err != nil {
		return nil, fmt.Errorf("%w as %s: %w", errCorruptBody, coding, err)
	}
	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(r, int64(limit)+1))
	if n > int64(limit) || errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return nil, fmt.Errorf("%w: inflates to more than %d bytes", errBodyTooLarge, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("%w as %s: %w", errCorruptBody, coding, err)
	}
	return out.Bytes(), nil
}
