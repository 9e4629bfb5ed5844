-- The application's table, and the trigger that submits each change of a row as a task. The server has created the schema
-- `keylane` when it started for the first time.

CREATE TABLE sections (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    page text NOT NULL,
    heading text NOT NULL,
    body text NOT NULL,
    revision integer NOT NULL DEFAULT 1
);

CREATE FUNCTION submit_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed sections := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    -- In the transaction of the change: the task exists if and only if that commits. A later change of the row waits for this
    -- transaction, so its task comes behind this one.
    PERFORM keylane.submit(
        'index',
        json_build_object('operation', TG_OP, 'row', changed),
        key => 'sections/' || changed.id,
        options => '{"shared_keys": ["sections"]}'
    );
    RETURN NULL;
END $$;

CREATE TRIGGER submit_change AFTER INSERT OR UPDATE OR DELETE ON sections
    FOR EACH ROW EXECUTE FUNCTION submit_change();
