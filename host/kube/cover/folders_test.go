package cover

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// TestParseConfiguration: the linker's configuration is read as ldconfig does.
func TestParseConfiguration(t *testing.T) {
	folders, includes := parseConfiguration([]byte("# first\n include /etc/ld.so.conf.d/*.conf  more/*\n\t/opt/a # why\n/opt/with space=libc6\nrelative\nhwcap 1 nosegneg\ninclude\n\n/opt/b"))
	if want := []string{"/opt/a", "/opt/with space", "/opt/b"}; !slices.Equal(folders, want) {
		t.Errorf("folders %q, want %q", folders, want)
	}
	if want := []string{"/etc/ld.so.conf.d/*.conf", "more/*"}; !slices.Equal(includes, want) {
		t.Errorf("includes %q, want %q", includes, want)
	}
}

// TestLibraryPath: a library path is read as the dynamic linker does.
func TestLibraryPath(t *testing.T) {
	for value, want := range map[string][]string{
		"":                   {"/work"},
		"/a:/b;/c":           {"/a", "/b", "/c"},
		"/a:":                {"/a", "/work"},
		"b":                  {"/work/b"},
		"/opt/${LIB}/x":      {"/opt/lib/x", "/opt/lib64/x", "/opt/lib/x86_64-linux-gnu/x", "/opt/lib/aarch64-linux-gnu/x"},
		"/link/../elsewhere": {"/link/../elsewhere"},
	} {
		if got := libraryPath(value, "/work"); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}

// FuzzParseConfiguration: whatever stands in it, folders are whole paths, and nothing is made up.
func FuzzParseConfiguration(f *testing.F) {
	f.Add([]byte("include /etc/ld.so.conf.d/*.conf\n/opt/a\n"))
	f.Add([]byte("/a=libc6 # x\ninclude a b\nhwcap 0 x"))
	f.Fuzz(func(t *testing.T, content []byte) {
		folders, includes := parseConfiguration(content)
		for _, folder := range folders {
			if !path.IsAbs(folder) || !strings.Contains(string(content), folder) || strings.ContainsAny(folder, "\n#=") {
				t.Errorf("of %q it makes the folder %q", content, folder)
			}
		}
		for _, pattern := range includes {
			if pattern == "" || !strings.Contains(string(content), pattern) {
				t.Errorf("of %q it makes the include %q", content, pattern)
			}
		}
	})
}

// FuzzCached: whatever stands in the linker's cache, what is found is whole paths that stand in it.
func FuzzCached(f *testing.F) {
	f.Add([]byte("glibc-ld.so.cache1.1\x00/opt/x/libcuda.so.1\x00/libc.so.6\x00"))
	f.Fuzz(func(t *testing.T, cache []byte) {
		for _, folder := range cached(cache) {
			if !path.IsAbs(folder) || !strings.Contains(string(cache), folder+"/") {
				t.Errorf("of %q it makes the folder %q", cache, folder)
			}
		}
	})
}
