// Package deploy carries what is installed into a cluster, so that tests install the same.
package deploy

import _ "embed"

// Agent is what the node agent needs in a cluster: its account, what that may do, and the device class. A YAML stream.
//
//go:embed agent.yaml
var Agent []byte

// Shares is the kind Share: its definition, who may do what with it, and what the agent may write of it. A YAML stream.
//
//go:embed share.yaml
var Shares []byte
