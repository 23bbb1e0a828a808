package images

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// An image is called by its version, and by what is in it, too, where the version is of no commit; the chart is told so.
func TestTag(t *testing.T) {
	file := filepath.Join(t.TempDir(), "thing")
	of := func(content string) Image {
		if err := os.WriteFile(file, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
		return Image{Name: content, Files: map[string]string{"/bin/thing": file}}
	}
	for version, want := range map[string]string{
		"v0.2.0-3-g12ab34c": `^v0\.2\.0-3-g12ab34c$`, "feature/a b": `^feature-a-b$`, "12ab34c-dirty": `^12ab34c-dirty-[0-9a-f]{8}$`, "unknown": `^unknown-[0-9a-f]{8}$`,
	} {
		if got, err := Tag(of("a"), version); err != nil || !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("of version %s the tag is %q, %v; want %s", version, got, err, want)
		}
	}
	tag := func(content string) string {
		got, err := Tag(of(content), "12ab34c-dirty")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if one, again, other := tag("a"), tag("a"), tag("b"); one != again || one == other {
		t.Errorf("the same image is called %s and %s, and another %s", one, again, other)
	}
	if got, err := Tag(of("a"), "-."); err == nil {
		t.Errorf("without a version the tag is %q", got)
	}

	folder := t.TempDir()
	if got, err := ReadTag(folder); err == nil {
		t.Errorf("of no image the tag is %q", got)
	}
	if _, err := WriteValues(folder, "12ab34c"); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadTag(folder); got != "12ab34c" || err != nil {
		t.Errorf("the tag is read as %q, %v", got, err)
	}
}
