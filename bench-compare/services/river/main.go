// Command river is the part of a comparison that submits to River and works for it.
//
//	river ROLE
//
// The environment has the address of the database (DATABASE) and the settings of the part, as JSON (PART). Parts and
// the process that measures exchange lines of JSON over standard input and output: see ../part.mjs.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// settings are those at the top of ../river.mjs, and which share of the jobs the part has.
type settings struct {
	Pool              int     `json:"pool"`
	Workers           int     `json:"workers"`
	FetchCooldown     int     `json:"fetchCooldown"`
	FetchPollInterval int     `json:"fetchPollInterval"`
	From              int     `json:"from"`
	To                int     `json:"to"`
	Chunk             int     `json:"chunk"`
	AtATime           int     `json:"atATime"`
	Timed             bool    `json:"timed"`
	Key               *string `json:"key"`
	Count             int     `json:"count"`
}

var roles = map[string]func(context.Context, settings) error{
	"version": printVersion,
	"migrate": migrate,
	"submit":  submit,
	"work":    work,
	"start":   start,
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 || roles[os.Args[1]] == nil {
		return fmt.Errorf("usage: river version|migrate|submit|work|start")
	}
	var own settings
	if text := os.Getenv("PART"); text != "" {
		if err := json.Unmarshal([]byte(text), &own); err != nil {
			return fmt.Errorf("PART: %w", err)
		}
	}
	return roles[os.Args[1]](context.Background(), own)
}

func printVersion(context.Context, settings) error {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/riverqueue/river" {
			fmt.Println(module.Version)
			return nil
		}
	}
	return fmt.Errorf("this program was built without modules")
}

func connect(ctx context.Context, size int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE"))
	if err != nil {
		return nil, fmt.Errorf("DATABASE: %w", err)
	}
	config.MaxConns = int32(max(size, 1))
	config.MinConns = config.MaxConns
	return pgxpool.NewWithConfig(ctx, config)
}

func migrate(ctx context.Context, _ settings) error {
	pool, err := connect(ctx, 2)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New[pgx.Tx](riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}
