package testcluster

import (
	"fmt"
	"os"
)

// Audit has the API server note what was asked of it.
type Audit struct {
	Path  string // of a file, to which is appended; empty: nothing is noted
	Group string // of users, whose requests alone are noted
}

// options are the API server's for it.
func (a Audit) options(s state) ([]string, error) {
	if a.Path == "" {
		return nil, nil
	}
	policy := fmt.Sprintf(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: [%q]}
- {level: None}
`, a.Group)
	path := s.path("audit.yaml")
	return []string{"--audit-policy-file=" + path, "--audit-log-path=" + a.Path, "--audit-log-maxsize=1000"}, os.WriteFile(path, []byte(policy), 0o600)
}
