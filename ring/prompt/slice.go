package prompt

// AppendSlice appends to dst the body of a request for a prefix of body's prompt and one token of output, as one JSON
// answer. share is the part of the prompt's text that the prefix should have, counted in bytes in the order in which an
// engine renders it, between 0 and 1. ok is false, and slice is dst, when there is no such prefix.
func AppendSlice(dst, body []byte, family Family, share float64) (slice []byte, ok bool) {
	return dst, false
}
