package tools

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

const moduleRoot = "../.."

func TestEveryToolIsPinnedByItsGoMod(t *testing.T) {
	for _, spec := range Specs() {
		version, err := spec.pinned(moduleRoot)
		if err != nil {
			t.Errorf("%s: %v", spec.Name, err)
		}
		if !spec.Accepts(version, version) {
			t.Errorf("%s does not accept its own version %s", spec.Name, version)
		}
	}
}

func TestVersionsAreReadFromWhatToolsPrint(t *testing.T) {
	for text, want := range map[string]Version{
		"Kubernetes v1.37.2\n": {1, 37, 2},
		"etcd Version: 3.6.16\nGit SHA: x\nGo Version: go1.26.8": {3, 6, 16},
		"kwok version v0.8.0 go1.26.8 (linux/amd64)":             {0, 8, 0},
		"Client Version: v1.32.4\nKustomize Version: v5.5.0":     {1, 32, 4},
	} {
		got, err := ParseVersion(text)
		if err != nil || got != want {
			t.Errorf("ParseVersion(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	if _, err := ParseVersion("devel"); err == nil {
		t.Error("a text without a version was accepted")
	}
}

func TestVersionsFromElsewhereAreTakenOnlyWhereTheyWillDo(t *testing.T) {
	for _, test := range []struct {
		name          string
		accepts       func(found, pinned Version) bool
		found, pinned Version
		want          bool
	}{
		{"the same minor release of the API server", sameMinor, Version{1, 37, 0}, Version{1, 37, 2}, true},
		{"another minor release of the API server", sameMinor, Version{1, 36, 9}, Version{1, 37, 2}, false},
		{"kubectl one minor release off", withinOneMinor, Version{1, 38, 0}, Version{1, 37, 2}, true},
		{"kubectl two minor releases off", withinOneMinor, Version{1, 35, 0}, Version{1, 37, 2}, false},
		{"an etcd that answers progress requests", etcdAnswersProgress, Version{3, 5, 13}, Version{3, 6, 16}, true},
		{"a distribution's old etcd", etcdAnswersProgress, Version{3, 4, 30}, Version{3, 6, 16}, false},
	} {
		if got := test.accepts(test.found, test.pinned); got != test.want {
			t.Errorf("%s: accepted %v, want %v", test.name, got, test.want)
		}
	}
}

func TestTheCacheKeyFollowsTheContentOfTheModule(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "tools", "etcd")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := Specs()[0]
	key := func(sum string) string {
		for name, text := range map[string]string{"go.mod": "module x\n\ngo 1.26.0\n", "go.sum": sum} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		key, err := contentKey(context.Background(), root, spec, Version{3, 6, 16})
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	one, same, other := key("a"), key("a"), key("b")
	if one != same {
		t.Errorf("one content has two keys: %s, %s", one, same)
	}
	if one == other {
		t.Error("two contents share a key")
	}
}
