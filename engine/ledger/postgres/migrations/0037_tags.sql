-- beside: 10
-- Schedules by their tags, which stand in the definition as a list.
CREATE INDEX CONCURRENTLY definitions_tags ON definitions USING gin ((definition -> 'tags'))
    WHERE definition ? 'tags';
