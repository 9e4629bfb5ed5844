-- An edit of a random row, for pgbench.
\set id random(1, :rows)
UPDATE sections SET body = body || ' edited', revision = revision + 1 WHERE id = :id;
