package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
)

// Tenant returns the tenant of a request: a hash of its API key under the secret, so that neither keys nor tenants can be
// guessed from what proxies tell each other. 0 means that the request has no key. The key is the credential of the
// Authorization header, else the x-api-key header; the same key in either place is the same tenant. Proxies that share
// sessions need the same secret; an empty secret is a constant that anybody can compute with.
func Tenant(secret string, authorization, apiKey []byte) uint64 {
	credential := bytes.TrimSpace(authorization)
	if scheme := len("bearer "); len(credential) > scheme && bytes.EqualFold(credential[:scheme], []byte("bearer ")) {
		credential = bytes.TrimSpace(credential[scheme:])
	} else if len(credential) == scheme-1 && bytes.EqualFold(credential, []byte("bearer")) {
		credential = nil
	}
	if len(credential) == 0 {
		credential = bytes.TrimSpace(apiKey)
	}
	if len(credential) == 0 {
		return 0
	}
	var room [512]byte
	text := binary.BigEndian.AppendUint64(room[:0], uint64(len(secret)))
	text = append(text, secret...)
	text = append(text, credential...)
	sum := sha256.Sum256(text)
	return max(binary.BigEndian.Uint64(sum[:]), 1)
}
