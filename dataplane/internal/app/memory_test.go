package app

import (
	"testing"
	"testing/fstest"
)

func TestMemoryLimitIsTheLeastOfTheControlGroups(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text + "\n")} }
	tests := []struct {
		name  string
		files fstest.MapFS
		want  int64
	}{
		{"no control groups", fstest.MapFS{}, 0},
		{"container", fstest.MapFS{"proc/self/cgroup": file("0::/"), "sys/fs/cgroup/memory.max": file("1073741824")}, 1 << 30},
		{"no limit", fstest.MapFS{"proc/self/cgroup": file("0::/"), "sys/fs/cgroup/memory.max": file("max")}, 0},
		{"limit of a parent", fstest.MapFS{
			"proc/self/cgroup": file("0::/system.slice/mgw.service/main"), "sys/fs/cgroup/system.slice/mgw.service/main/memory.max": file("max"),
			"sys/fs/cgroup/system.slice/mgw.service/memory.max": file("536870912"), "sys/fs/cgroup/system.slice/memory.max": file("1073741824"),
		}, 512 << 20},
		{"version 1", fstest.MapFS{"sys/fs/cgroup/memory/memory.limit_in_bytes": file("268435456")}, 256 << 20},
		{"version 1 without a limit", fstest.MapFS{"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712")}, 0},
	}
	for _, tt := range tests {
		if got := cgroupLimit(tt.files); got != tt.want {
			t.Errorf("%s: got %d; want %d", tt.name, got, tt.want)
		}
	}
	if got := bodyBudget(123); got != 123 {
		t.Errorf("a budget that is set: got %d", got)
	}
}
