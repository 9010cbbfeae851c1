package wire

import "testing"

func TestSkeleton(t *testing.T) {
	var k skeleton
	if k.fits([]byte(delta(`"content":"x"`))) {
		t.Error("an empty skeleton fits")
	}
	k.take([]byte(delta(`"content":"first"`)))
	for text, want := range map[string]bool{
		``: true, `second`: true, `a \"quoted\" one`: true, `\\`: true, "\u00e4": true,
		`x"},"finish_reason":"abort","y":{"content":"`: false, `x","content":"y`: false, `x\`: false, `x\\"`: false,
	} {
		if k.fits([]byte(delta(`"content":"`+text+`"`))) != want {
			t.Errorf("%q: fits is not %v", text, want)
		}
	}
	for _, other := range []string{delta(`"content":""`) + " ", delta(`"reasoning_content":"x"`), `{"error":"x"}`, `{"choices":[]}`, ""} {
		if k.fits([]byte(other)) {
			t.Errorf("fits %s", other)
		}
	}
	k.take([]byte(roleOnly[:40]))
	if k.fits([]byte(roleOnly[:40])) {
		t.Error("no text, but a skeleton")
	}
	// Surroundings that overlap must not be counted twice.
	k.take([]byte(`{"choices":[{"delta":{"content":""}}]}`))
	if k.fits([]byte(`{"choices":[{"delta":{"content":"}}]}`)) {
		t.Error("fits a chunk that is too short")
	}
}
