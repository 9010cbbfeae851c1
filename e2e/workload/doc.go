// Package workload writes the traffic of agents: sessions of many turns whose prompts extend each other, forks and
// sub-agents, pauses of people, a few very long prompts, from clients that name their sessions in different ways or not at
// all. It is pure: the same Spec gives the same requests, byte for byte, on every machine, and nothing is sent from here.
//
// A session is a list of pieces (what the user, the agent and its tools said) with a cut per turn: turn n's prompt is the
// client's head (tools and system prompt, shared by all sessions of that client) and the pieces up to cut n. A fork shares
// its parent's pieces up to the turn it left from; a sub-agent has another head and shares nothing with its parent, as
// recorded sessions show. The agents' lines are part of the script, so that runs against different fleets, whatever these
// answer, send the same prompts.
//
// Tokens are counted at BytesPerToken bytes of text each. Totals tells what an infinitely large single cache would hit,
// which is the limit for every router. Limits: text is ASCII in an invented language; a session is at most a few thousand
// pieces, all held in memory; there are no images, compactions or edits of earlier turns.
package workload
