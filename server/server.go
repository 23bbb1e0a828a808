package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// SocketName is the name of the API's socket in RUN.
const SocketName = "aliquot.sock"

// Config says where a server listens. Run, Token, Host and Log must be given.
type Config struct {
	Host    Host
	Version string
	Run     string       // folder of the Unix socket; whoever calls Serve is its only server
	Token   string       // file of the token for loopback; made if it is not there
	HTTP    net.Listener // on loopback, see Listen; nil: none. Closed by Serve
	// Warnings are what this server does without, each with what to do; in its Info beside the host's.
	Warnings []string
	Names    func(uid uint32) string
	Log      *slog.Logger
	Ready    func() // called once, when it answers; may be nil
}

// shutdownPatience is how long requests may take to end when the server does.
const shutdownPatience = 2 * time.Second

// Serve answers until ctx ends.
func Serve(ctx context.Context, config Config) error {
	if config.HTTP != nil {
		defer func() { _ = config.HTTP.Close() }()
	}
	socket, err := listenSocket(filepath.Join(config.Run, SocketName))
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	routes := newRoutes(config)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	servers := []*http.Server{httpServer(ctx, config, bySocket(config.Names, routes))}
	listeners := []net.Listener{socket}
	if config.HTTP != nil {
		token, err := loadToken(config.Token)
		if err != nil {
			return err
		}
		servers, listeners = append(servers, httpServer(ctx, config, byToken(config.Names, token, routes))), append(listeners, config.HTTP)
	}
	failed := make(chan error, len(servers))
	for i := range servers {
		go func() { failed <- servers[i].Serve(listeners[i]) }()
	}
	if config.Ready != nil {
		config.Ready()
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel() // ends what waits and listens
	patience, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownPatience)
	defer done()
	for _, one := range servers {
		if one.Shutdown(patience) != nil {
			_ = one.Close()
		}
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

func httpServer(ctx context.Context, config Config, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withPeer,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(config.Log.Handler(), slog.LevelDebug),
	}
}

func listenSocket(path string) (net.Listener, error) {
	// The caller is the only server of this folder: whatever is there is left over.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("make the API's socket: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("make the API's socket: the path %s is too long for a socket: choose a shorter folder with --run", path)
	}
	if err != nil {
		return nil, fmt.Errorf("make the API's socket: %w", err)
	}
	mode := os.FileMode(0o600)
	if os.Geteuid() == 0 {
		mode = 0o666 // for every user of the machine; who calls, the kernel says
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("make the API's socket: %w", err), listener.Close())
	}
	return listener, nil
}

// addressPatience is how long an address may be held by what a killed server was just starting: between fork and exec a child holds
// what its parent did.
const addressPatience = 2 * time.Second

// Listen takes an address on loopback, for Config.HTTP. It is taken before anything is started, so that a server that cannot have it
// leaves nothing behind.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("HTTP is served on loopback only, and %q is not there: write 127.0.0.1:8787", address)
	}
	within, cancel := context.WithTimeout(ctx, addressPatience)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return listener, nil
		}
		if errors.Is(err, unix.EADDRINUSE) {
			select {
			case <-again.C:
				continue
			case <-within.Done():
			}
		}
		return nil, fmt.Errorf("listen on %s: %w; choose another address with --http, or `--http off`", address, err)
	}
}
